package bide_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/bide-dev/bide"
)

// Each Go block of the documents is a region of this file, between a "begin" and
// an "end" comment, so that it compiles, and a test around it shows that it does
// what the text says.

func TestDocsModelCall(t *testing.T) {
	// begin model call
	modelCall := bide.RetryPolicy{
		InitialInterval:    2 * time.Second,
		BackoffCoefficient: 2,
		MaximumInterval:    time.Minute,
		MaximumAttempts:    5,
		RetryIf: func(err error) bool {
			e, ok := errors.AsType[*modelError](err)
			return !ok || e.Type != "invalid_request_error" && e.Type != "authentication_error"
		},
	}
	// end model call
	overloaded := &modelError{Type: "overloaded_error"}
	docsWant(t, modelCall, overloaded, 0, 2*time.Second, 6*time.Second, 14*time.Second, 30*time.Second)
	docsWant(t, modelCall, errors.New("connection reset"), 0, 2*time.Second, 6*time.Second, 14*time.Second, 30*time.Second)
	docsWant(t, modelCall, &modelError{Type: "invalid_request_error"}, 0)
	docsWant(t, modelCall, fmt.Errorf("ask: %w", &modelError{Type: "authentication_error"}), 0)
	modelCall.MaximumAttempts = 7
	docsWant(t, modelCall, overloaded, 0, 2*time.Second, 6*time.Second, 14*time.Second, 30*time.Second, 62*time.Second, 122*time.Second)
}

// modelError is the error of a model's client library.
type modelError struct{ Type string }

func (e *modelError) Error() string { return e.Type }

func TestDocsDatabase(t *testing.T) {
	// begin database
	database := bide.RetryPolicy{
		InitialInterval:    500 * time.Millisecond,
		BackoffCoefficient: 1.5,
		MaximumAttempts:    10,
		RetryIf: func(err error) bool {
			var e interface{ SQLState() string } // as pgx and pq have it
			return !errors.As(err, &e) || !slices.Contains([]string{
				"23505", // unique violation
				"23503", // foreign-key violation
			}, e.SQLState())
		},
	}
	// end database
	at, pause := []time.Duration{0}, 500*time.Millisecond
	for range 9 {
		at = append(at, at[len(at)-1]+pause)
		pause = pause * 3 / 2
	}
	docsWant(t, database, docsSQLError("40001"), at...)
	docsWant(t, database, docsSQLError("23505"), 0)
	docsWant(t, database, fmt.Errorf("insert: %w", docsSQLError("23503")), 0)
}

type docsSQLError string

func (e docsSQLError) Error() string    { return "SQLSTATE " + string(e) }
func (e docsSQLError) SQLState() string { return string(e) }

func TestDocsEmail(t *testing.T) {
	calls := 0
	outcome := errors.New("mailbox full")
	sent := make(chan struct{}, 1)
	send := func(ctx context.Context) (string, error) {
		calls++
		sent <- struct{}{}
		if outcome == nil {
			<-ctx.Done() // the process dies meanwhile
			return "", ctx.Err()
		}
		return "", outcome
	}
	letter := bide.Define("letter", func(ctx bide.Context, _ string) (string, error) {
		// begin e-mail
		once := bide.RetryPolicy{MaximumAttempts: 1}

		id, err := bide.Step(ctx, "send", send, once)
		if errors.Is(err, bide.ErrInterrupted) {
			// Nobody knows whether it was sent: ask the mail service, or a person.
			return bide.Receive[string](ctx, "was it sent?")
		}
		// end e-mail
		return id, err
	})
	inBubble(t, func(e *env) {
		_, err := run(e, letter, "")
		if calls != 1 || !errors.As(err, new(*bide.StepError)) || !strings.Contains(err.Error(), "mailbox full") {
			e.Errorf("%d calls, then %v; want one, and its own error", calls, err)
		}
	})
	calls, outcome = 0, nil
	sent = make(chan struct{}, 1)
	inBubble(t, func(e *env) {
		dying := e.work(letter)
		h := start(e, letter, "", bide.FirstSignal("was it sent?", "no"))
		time.Sleep(time.Second)
		dying.crash()
		e.work(letter)
		answer, err := result(e, h)
		if calls != 1 || answer != "no" || err != nil {
			e.Errorf("%d calls, then %q, %v; want one call, and a person's answer", calls, answer, err)
		}
	})
}

func TestDocsExternalAPI(t *testing.T) {
	for _, c := range []struct {
		status int
		header string
		at     []time.Duration
	}{
		{status: 500, at: []time.Duration{0, 5 * time.Second, 15 * time.Second}},
		{status: 503, header: "60", at: []time.Duration{0, time.Minute, 2 * time.Minute}},
		{status: 429, header: "1", at: []time.Duration{0, time.Second, 2 * time.Second}},
		{status: 429, header: "soon", at: []time.Duration{0, 5 * time.Second, 15 * time.Second}},
		{status: 400, at: []time.Duration{0}},
		{status: 401, at: []time.Duration{0}},
		{status: 403, header: "60", at: []time.Duration{0}},
		{status: 404, at: []time.Duration{0}},
		{status: 200, at: []time.Duration{0}},
	} {
		inBubble(t, func(e *env) {
			calls := newClock()
			client := &http.Client{Transport: docsTransport(func(*http.Request) *http.Response {
				calls.tick()
				return &http.Response{StatusCode: c.status, Status: http.StatusText(c.status),
					Header: http.Header{"Retry-After": {c.header}}, Body: io.NopCloser(strings.NewReader("a page"))}
			})}
			fetch := bide.Define("fetch", func(ctx bide.Context, url string) (string, error) {
				// begin external API
				externalAPI := bide.RetryPolicy{InitialInterval: 5 * time.Second, MaximumAttempts: 3}

				// end external API
				externalAPI.NoJitter = true
				// begin external API
				return bide.Step(ctx, "fetch", func(ctx context.Context) (string, error) {
					req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
					if err != nil {
						return "", bide.Permanent(err)
					}
					resp, err := client.Do(req)
					if err != nil {
						return "", err
					}
					defer resp.Body.Close()
					switch resp.StatusCode {
					case 200:
						body, err := io.ReadAll(resp.Body)
						return string(body), err
					case 400, 401, 403, 404:
						return "", bide.Permanent(errors.New(resp.Status))
					}
					if seconds, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil {
						return "", bide.RetryAfter(errors.New(resp.Status), time.Duration(seconds)*time.Second)
					}
					return "", errors.New(resp.Status)
				}, externalAPI)
				// end external API
			})
			page, err := run(e, fetch, "http://api.example/page")
			if (err == nil) != (c.status == 200) || err == nil && page != "a page" {
				e.Errorf("status %d gives %q, %v", c.status, page, err)
			}
			calls.want(e, fmt.Sprintf("calls with status %d, Retry-After %q", c.status, c.header), c.at...)
		})
	}
}

type docsTransport func(*http.Request) *http.Response

func (f docsTransport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r), nil }

func TestDocsTimeouts(t *testing.T) {
	calls := 0
	var gaveUp *bide.RetryExhaustedError
	ask := func(ctx context.Context) (string, error) {
		calls++
		<-ctx.Done() // no answer ever
		return "", ctx.Err()
	}
	policy := bide.RetryPolicy{InitialInterval: time.Second, BackoffCoefficient: 1, NoJitter: true}
	hasty := bide.Define("hasty", func(ctx bide.Context, _ string) (string, error) {
		// begin timeouts
		answer, err := bide.Step(ctx, "ask", ask, policy,
			bide.AttemptTimeout(2*time.Minute), // one attempt
			bide.Timeout(10*time.Minute))       // all of them, and the pauses between
		if e, ok := errors.AsType[*bide.RetryExhaustedError](err); ok {
			bide.Log(ctx).Warn("no answer", "attempts", e.Attempts, "reason", e.Reason, "last", e.LastErr)
			return "I do not know", nil
		}
		// end timeouts
		gaveUp, _ = errors.AsType[*bide.RetryExhaustedError](err)
		return answer, err
	})
	inBubble(t, func(e *env) {
		began := time.Now()
		answer, err := run(e, hasty, "")
		if took := time.Since(began); answer != "I do not know" || err != nil || calls != 5 || took != 10*time.Minute {
			e.Errorf("%q, %v after %d calls in %v; want 5 calls in 10m", answer, err, calls, took)
		}
		if logged := e.logs.String(); !strings.Contains(logged, "attempts=5 reason="+bide.ReasonTotalTimeout) {
			e.Errorf("the log does not tell what happened:\n%s", logged)
		}
		if gaveUp != nil {
			e.Errorf("the workflow went past its fallback with %v", gaveUp)
		}
	})
}

func TestDocsJitter(t *testing.T) {
	policy := bide.RetryPolicy{InitialInterval: 10 * time.Second, MaximumInterval: 40 * time.Second, MaximumAttempts: 40}
	inBubble(t, func(e *env) {
		calls := newClock()
		_, err := run(e, docsFailing(policy, errors.New("no"), calls), "")
		if n := wantErr[*bide.RetryExhaustedError](e, err).Attempts; n != 40 {
			e.Errorf("%d attempts, want 40", n)
		}
		at, most, short, long := calls.ticks(), 10*time.Second, 0, 0
		for i := 1; i < len(at); i++ {
			pause := at[i] - at[i-1]
			if pause > most {
				e.Errorf("pause %d is %v, more than %v", i, pause, most)
			}
			if pause < most/2 {
				short++
			} else {
				long++
			}
			most = min(2*most, 40*time.Second)
		}
		if short < 5 || long < 5 {
			e.Errorf("%d pauses in the lower half and %d in the upper: no full jitter", short, long)
		}
	})
}

func TestDocsWaiting(t *testing.T) {
	nap := bide.Define("greet", func(ctx bide.Context, _ string) (string, error) {
		return "", bide.Sleep(ctx, 10*time.Second)
	})
	inBubble(t, func(e *env) {
		ctx, client := e.Context(), e.client
		e.work(nap)
		start(e, nap, "world", bide.ID("greet-world"))
		time.Sleep(time.Second)
		// begin waiting
		run, err := client.Get(ctx, "greet-world")
		fmt.Println(run.State, run.Waiting) // waiting [sleep, until 14:03:10]
		// end waiting
		e.ok(err)
		if got := fmt.Sprintln(run.State, run.Waiting); !regexp.MustCompile(`^waiting \[sleep, until \d\d:\d\d:10\]\n$`).MatchString(got) {
			e.Errorf("the run says %q", got)
		}
	})
}

// docsFailing is a workflow of one step that always fails.
func docsFailing(policy bide.RetryPolicy, failure error, calls *clock) *bide.Workflow[string, string] {
	return bide.Define("failing", func(ctx bide.Context, _ string) (string, error) {
		return bide.Step(ctx, "fail", func(context.Context) (string, error) {
			calls.tick()
			return "", failure
		}, policy)
	})
}

// docsWant checks when a step that always fails is called, with jitter set aside,
// and that it is called as often with jitter.
func docsWant(t *testing.T, policy bide.RetryPolicy, failure error, at ...time.Duration) {
	t.Helper()
	for _, exact := range []bool{true, false} {
		policy.NoJitter = exact
		inBubble(t, func(e *env) {
			e.Helper()
			calls := newClock()
			_, err := run(e, docsFailing(policy, failure, calls), "")
			if err == nil || !strings.Contains(err.Error(), failure.Error()) {
				e.Errorf("the run ends with %v, want %v in it", err, failure)
			}
			_, exhausted := errors.AsType[*bide.RetryExhaustedError](err)
			if exhausted != (len(at) > 1) {
				e.Errorf("the run ends with %v after %d attempts", err, len(at))
			}
			got := calls.ticks()
			if len(got) != len(at) {
				e.Errorf("%v: attempts at %v, want %d of them", failure, got, len(at))
				return
			}
			for i, d := range got {
				if off := d - at[i]; exact && off.Abs() > time.Millisecond || d > at[i]+time.Millisecond {
					e.Errorf("%v: attempts at %v, want %v", failure, got, at)
					return
				}
			}
		})
	}
}

// Every Go block of the documents is a region of this file, to the letter, or
// the program of examples/greet.
func TestDocs(t *testing.T) {
	regions := docsRegions(t, docsRead(t, "docs_test.go")+docsRead(t, "rules_test.go"))
	_, program, found := strings.Cut(docsRead(t, "examples/greet/main.go"), "\npackage main\n")
	if !found {
		t.Fatal("examples/greet/main.go has no package clause")
	}
	regions["examples/greet/main.go"] = docsNormal("package main\n" + program)

	documents, err := filepath.Glob("docs/*.md")
	if err != nil || len(documents) == 0 {
		t.Fatalf("found the documents %v, %v", documents, err)
	}
	used := map[string]bool{}
	for _, document := range append(documents, "README.md") {
		for _, block := range docsBlocks(t, docsRead(t, document)) {
			region := ""
			for name, code := range regions {
				if code == docsNormal(block) {
					region = name
				}
			}
			if region == "" {
				t.Errorf("%s: this block is no region of docs_test.go:\n%s", document, block)
			}
			used[region] = true
		}
	}
	for name := range regions {
		if !used[name] {
			t.Errorf("no document shows the region %q", name)
		}
	}
}

func docsRead(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.FromSlash(name))
	if err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(string(text), "\r\n", "\n")
}

// docsBlocks returns the fenced Go blocks of a document.
func docsBlocks(t *testing.T, text string) (blocks []string) {
	t.Helper()
	fence, block := "", []string(nil)
	for line := range strings.Lines(text) {
		mark := strings.TrimSpace(line)
		switch {
		case fence == "" && strings.HasPrefix(mark, "```"):
			fence, block = mark, nil
		case fence != "" && mark == "```":
			if fence == "```go" {
				blocks = append(blocks, strings.Join(block, ""))
			}
			fence = ""
		case fence != "":
			block = append(block, line)
		}
	}
	if fence != "" {
		t.Fatalf("a block that begins with %s does not end", fence)
	}
	return blocks
}

// docsRegions returns the regions of a Go file by name; one that stands in
// several pieces is put together.
func docsRegions(t *testing.T, src string) map[string]string {
	t.Helper()
	pieces := map[string]string{}
	name := ""
	for line := range strings.Lines(src) {
		mark := strings.TrimSpace(line)
		begun, begins := strings.CutPrefix(mark, "// begin ")
		ended, ends := strings.CutPrefix(mark, "// end ")
		switch {
		case begins && name == "":
			name = begun
		case ends && name == ended:
			name = ""
		case begins || ends:
			t.Fatalf("%q does not fit: the region %q is open", mark, name)
		case name != "":
			pieces[name] += line
		}
	}
	if name != "" {
		t.Fatalf("the region %q does not end", name)
	}
	regions := map[string]string{}
	for name, code := range pieces {
		regions[name] = docsNormal(code)
	}
	return regions
}

// docsNormal takes off the indentation that all lines share, and what is empty
// at either end.
func docsNormal(code string) string {
	lines := strings.Split(code, "\n")
	shared := len(code)
	for _, line := range lines {
		if text := strings.TrimLeft(line, "\t"); text != "" {
			shared = min(shared, len(line)-len(text))
		}
	}
	for i, line := range lines {
		lines[i] = line[min(shared, len(line)):]
	}
	return strings.Trim(strings.Join(lines, "\n"), "\n")
}

// The comparison finds a block that differs in a letter, and regions that do not
// close.
func TestDocsNormal(t *testing.T) {
	if got := docsNormal("\n\t\tif x {\n\n\t\t\ty()\n\t\t}\n"); got != "if x {\n\n\ty()\n}" {
		t.Errorf("normalised to %q", got)
	}
	blocks := docsBlocks(t, "a\n```go\nx\n```\n```\nnot Go\n```\n```go\ny\n\nz\n```\n")
	if !slices.Equal(blocks, []string{"x\n", "y\n\nz\n"}) {
		t.Errorf("found the blocks %q", blocks)
	}
	regions := docsRegions(t, "\t// begin a b\n\tx\n\t// end a b\n\tno\n\t// begin a b\n\ty\n\t// end a b\n")
	if len(regions) != 1 || regions["a b"] != "x\ny" {
		t.Errorf("found the regions %q", regions)
	}
}
