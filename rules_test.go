package bide_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/wait"
	"github.com/bide-dev/bide/webhook"
)

// The rules of docs/waiting.md name the tests that hold them: a rule without a
// test is a wish, and a test that was renamed must take its rule along.

func TestWaitingRules(t *testing.T) {
	doc, err := os.ReadFile(filepath.FromSlash("docs/waiting.md"))
	if err != nil {
		t.Fatal(err)
	}
	rows, faults := ruleRows(string(doc))
	if len(rows) < 150 {
		t.Errorf("found %d rules; are they not read any more?", len(rows))
	}
	prefixes := map[string]bool{}
	for _, r := range rows {
		prefixes[r.id[:1]] = true
	}
	if got := slices.Sorted(maps.Keys(prefixes)); !slices.Equal(got, []string{"B", "L", "P", "S", "W"}) {
		t.Errorf("the rules are of the kinds %q", got)
	}
	for _, fault := range append(faults, ruleFaults(rows, testsOfModule(t))...) {
		t.Error(fault)
	}
}

// rule is a row of the table: what holds, and the tests that say so.
type rule struct {
	id, text string
	tests    []string // "TestX", "TestX/case", "dir.TestX/case"
}

var (
	ruleRow = regexp.MustCompile(`^\| ([A-Z])(\d+) \| (.+) \|(.*)\|$`)
	ruleRef = regexp.MustCompile(`^(?:([a-z0-9/]+)\.)?((?:Test|Fuzz|Example)[A-Za-z0-9_]*)(?:/(.+))?$`)
	quoted  = regexp.MustCompile("`([^`]+)`")
)

// ruleRows reads the rules, which are all below one heading, and says what is
// wrong with their ids: each kind counts from 1, without gaps.
func ruleRows(doc string) (rows []rule, faults []string) {
	_, table, found := strings.Cut(doc, "\n## The rules\n")
	if !found {
		return nil, []string{`there is no heading "## The rules"`}
	}
	table, _, _ = strings.Cut(table, "\n## ")
	last := map[string]int{}
	for line := range strings.Lines(table) {
		line = strings.TrimSpace(line)
		m := ruleRow.FindStringSubmatch(line)
		if m == nil {
			if strings.HasPrefix(line, "|") && !strings.HasPrefix(line, "| rule |") && !strings.HasPrefix(line, "|---") {
				faults = append(faults, "this row is no rule: "+line)
			}
			continue
		}
		r := rule{id: m[1] + m[2], text: m[3]}
		if n, _ := strconv.Atoi(m[2]); n != last[m[1]]+1 {
			faults = append(faults, fmt.Sprintf("%s follows %s%d", r.id, m[1], last[m[1]]))
		}
		last[m[1]]++
		for _, q := range quoted.FindAllStringSubmatch(m[4], -1) {
			r.tests = append(r.tests, q[1])
		}
		rows = append(rows, r)
	}
	return rows, faults
}

// ruleFaults says which rules have no test, or name one that is not there. tests
// are the strings of each test by its name, as testsOfModule has them.
func ruleFaults(rows []rule, tests map[string]map[string]bool) (faults []string) {
	for _, r := range rows {
		if len(r.tests) == 0 {
			faults = append(faults, r.id+" has no test: "+r.text)
		}
		for _, name := range r.tests {
			m := ruleRef.FindStringSubmatch(name)
			if m == nil {
				faults = append(faults, fmt.Sprintf("%s: %q is no name of a test", r.id, name))
				continue
			}
			function := m[2]
			if m[1] != "" {
				function = m[1] + "." + m[2]
			}
			literals, known := tests[function]
			switch {
			case !known:
				faults = append(faults, fmt.Sprintf("%s: there is no test %s", r.id, function))
			case m[3] != "" && !hasCase(literals, m[3]):
				faults = append(faults, fmt.Sprintf("%s: %s has no case %q", r.id, function, m[3]))
			}
		}
	}
	return faults
}

// hasCase reports whether a test has the case among its strings; go test shows
// spaces as underscores, and joins the names of cases of cases.
func hasCase(literals map[string]bool, name string) bool {
	shown := func(s string) string { return strings.ReplaceAll(s, " ", "_") }
	for literal := range literals {
		if shown(literal) == shown(name) {
			return true
		}
	}
	outer, inner, nested := strings.Cut(name, "/")
	return nested && hasCase(literals, outer) && hasCase(literals, inner)
}

// testsOfModule returns the strings that stand in each test of this module, or in
// the tables of its file, by its name and, but for the root package, its directory:
// "wait.TestBackoff".
func testsOfModule(t *testing.T) map[string]map[string]bool {
	t.Helper()
	tests := map[string]map[string]bool{}
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			_, noModule := os.Stat(filepath.Join(name, "go.mod"))
			if base := d.Name(); name != "." && (base == "testdata" || strings.HasPrefix(base, ".") || noModule == nil) {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		dir := path.Dir(filepath.ToSlash(name))
		tables := map[string]bool{}
		for _, decl := range file.Decls {
			if _, ok := decl.(*ast.GenDecl); ok {
				maps.Copy(tables, stringsIn(decl))
			}
		}
		for _, decl := range file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || f.Recv != nil || !ruleRef.MatchString(f.Name.Name) {
				continue
			}
			function := f.Name.Name
			if dir != "." {
				function = dir + "." + function
			}
			tests[function] = stringsIn(f)
			maps.Copy(tests[function], tables)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return tests
}

func stringsIn(decl ast.Decl) map[string]bool {
	literals := map[string]bool{}
	ast.Inspect(decl, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			if s, err := strconv.Unquote(lit.Value); err == nil {
				literals[s] = true
			}
		}
		return true
	})
	return literals
}

// Each fault that the table may have is found.
func TestWaitingRulesFaults(t *testing.T) {
	tests := map[string]map[string]bool{"TestA": {"a case": true, "one": true, "two": true}, "wait.TestB": {}}
	for rows, want := range map[string][]string{
		"| P1 | all is well | `TestA` |\n| P2 | so too | `wait.TestB`, `TestA/a case` |\n| S1 | and here | `TestA/a_case`, `TestA/one/two` |": nil,
		"| P1 | untested | |\n| P2 | as well | soon |":   {"P1 has no test: untested", "P2 has no test: as well"},
		"| P1 | a | `TestA` |\n| P1 | b | `TestA` |":     {"P1 follows P1"},
		"| P1 | a | `TestA` |\n| P3 | b | `TestA` |":     {"P3 follows P1"},
		"| P2 | a | `TestA` |":                           {"P2 follows P0"},
		"| P1 | a | `TestB` |":                           {"P1: there is no test TestB"},
		"| P1 | a | `wait.TestA` |":                      {"P1: there is no test wait.TestA"},
		"| P1 | a | `TestA/b case` |":                    {`P1: TestA has no case "b case"`},
		"| P1 | a | `TestA/one/three` |":                 {`P1: TestA has no case "one/three"`},
		"| P1 | a | `helper` |":                          {`P1: "helper" is no name of a test`},
		"| P1 | only two cells |":                        {"this row is no rule: | P1 | only two cells |"},
		"| rule | what holds | held by |\n|---|---|---|": nil,
	} {
		read, got := ruleRows("# Waiting\n| P9 | before the heading | |\n\n## The rules\n\n" + rows + "\n\n## After\n| P7 | no rule | |\n")
		if got = append(got, ruleFaults(read, tests)...); !slices.Equal(got, want) {
			t.Errorf("of\n%s\nit finds %q, want %q", rows, got, want)
		}
	}
	if _, faults := ruleRows("# Waiting\n"); len(faults) != 1 {
		t.Errorf("of a document without rules it finds %q", faults)
	}
}

// The regions below are the Go blocks of docs/waiting.md; TestDocs compares them.

// renderJob is how a service shows a job.
type renderJob struct {
	State   string  `json:"state"`
	Percent float64 `json:"percent"`
}

func (j renderJob) isDone() bool                { return j.State == "done" }
func (j renderJob) Progress() (float64, string) { return j.Percent, j.State }

// rulesService is a service whose job takes ten minutes.
type rulesService struct {
	mu    sync.Mutex
	calls map[string]int
	began time.Time
	asked []time.Duration
	hook  string
	fails atomic.Bool
}

func (s *rulesService) job(context.Context, string) (renderJob, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	past := time.Since(s.began)
	s.asked = append(s.asked, past.Round(time.Second))
	if past >= 10*time.Minute {
		return renderJob{"done", 100}, nil
	}
	return renderJob{"running", float64(past) / float64(10*time.Minute) * 100}, nil
}

func (s *rulesService) submit(_ context.Context, hook string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.began, s.hook = time.Now(), hook
	return "j1", nil
}

func (s *rulesService) url() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hook
}

func (s *rulesService) weather(context.Context) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, time.Since(s.began).Round(time.Second))
	if s.fails.Load() {
		return "", errors.New("down")
	}
	return fmt.Sprint("rain ", len(s.asked)/3), nil
}

func TestDocsPoll(t *testing.T) {
	for _, status := range []int{http.StatusOK, http.StatusNotFound} {
		inBubble(t, func(e *env) {
			service := &rulesService{began: time.Now()}
			refused := 0
			get := func(ctx context.Context, url string) (*http.Response, error) {
				switch refused {
				case 0:
					refused++
					return nil, errors.New("connection reset")
				case 1:
					refused++
					return &http.Response{StatusCode: 503, Header: http.Header{"Retry-After": {"60"}}, Body: http.NoBody}, nil
				}
				j, err := service.job(ctx, url)
				if err != nil {
					return nil, err
				}
				return &http.Response{StatusCode: status, Body: io.NopCloser(strings.NewReader(jsonOf(t, j)))}, nil
			}
			render := bide.Define("render", func(ctx bide.Context, url string) (string, error) {
				// begin poll
				job, err := bide.Poll(ctx, "render", func(ctx context.Context) (renderJob, error) {
					var j renderJob
					resp, err := get(ctx, url)
					if err != nil {
						return j, err // transient, like every error that does not say otherwise
					}
					defer resp.Body.Close()
					if err := wait.CheckResponse(resp); err != nil {
						return j, err // a 404 is the end, a 503 is not; Retry-After is heeded
					}
					err = json.NewDecoder(resp.Body).Decode(&j)
					return j, err
				}, renderJob.isDone, bide.ETA{}, bide.MinInterval(time.Second), bide.Timeout(24*time.Hour))
				// end poll
				return job.State, err
			})
			state, err := run(e, render, "http://service.test/jobs/j1")
			took := time.Since(service.began)
			if status == http.StatusNotFound {
				if err == nil || !strings.Contains(err.Error(), "404 Not Found") || len(service.asked) != 1 || service.asked[0] < time.Minute {
					e.Errorf("%v after checks at %v", err, service.asked)
				}
			} else if state != "done" || err != nil || took > 10*time.Minute+5*time.Second || len(service.asked) > 25 {
				e.Errorf("%q, %v after %v; checks at %v", state, err, took, service.asked)
			}
		})
	}
}

func TestDocsPollWithWebhook(t *testing.T) {
	for _, lost := range []bool{false, true} {
		inBubble(t, func(e *env) {
			o, service := e.outside(webhook.Config{}), &rulesService{}
			render := bide.Define("render", func(ctx bide.Context, _ string) (string, error) {
				// begin poll with a webhook
				hook, err := bide.NewWebhook[renderJob](ctx, "rendered")
				if err != nil {
					return "", err
				}
				id, err := bide.Step(ctx, "submit", func(ctx context.Context) (string, error) {
					return service.submit(ctx, hook.URL())
				})
				if err != nil {
					return "", err
				}
				job, err := bide.Poll(ctx, "render", func(ctx context.Context) (renderJob, error) {
					return service.job(ctx, id)
				}, renderJob.isDone, bide.Every(time.Minute), bide.Timeout(24*time.Hour), bide.WakeOn(hook))
				// end poll with a webhook
				return job.State, err
			})
			e.workAs(e.public(), render)
			h := start(e, render, "")
			time.Sleep(10*time.Minute + time.Second)
			if !lost {
				o.wantSent("POST", service.url(), `{"state":"done"}`, 202, "{}")
			}
			state, err := result(e, h)
			late := time.Since(service.began) - 10*time.Minute
			if most := map[bool]time.Duration{false: 2 * time.Second, true: time.Minute}[lost]; state != "done" || err != nil || late > most {
				e.Errorf("the call is lost: %v; %q, %v, found out %v late", lost, state, err, late)
			}
		})
	}
}

func TestDocsLoop(t *testing.T) {
	inBubble(t, func(e *env) {
		service := &rulesService{began: time.Now()}
		// begin loop
		weather := bide.Loop("weather", func(ctx context.Context) error {
			report, err := service.weather(ctx)
			if err != nil {
				return err // the interval doubles, up to eight times
			}
			return bide.Publish(ctx, "report", report)
		}, bide.Every(5*time.Minute), bide.Adaptive{Min: time.Minute, Max: time.Hour})
		// end loop
		e.work(weather)
		time.Sleep(time.Hour)
		var report string
		if found, err := e.client.Loop("weather").Value(e.Context(), "report", &report); !found || err != nil || !strings.HasPrefix(report, "rain ") {
			e.Errorf("the report is %q: %v, %v", report, found, err)
		}
		s := e.loopState("weather")
		if s.Iterations < 12 || s.Interval != 5*time.Minute || s.Base >= 5*time.Minute {
			e.Errorf("with news in every third report: %s", jsonOf(t, s))
		}
		service.fails.Store(true)
		time.Sleep(2 * time.Hour)
		if s := e.loopState("weather"); s.Multiplier != 8 || s.LastError == nil {
			e.Errorf("while it fails: %s", jsonOf(t, s))
		}
	})
}

func TestDocsPerson(t *testing.T) {
	for _, answers := range []bool{true, false} {
		inBubble(t, func(e *env) {
			invoice := bide.Define("invoice", func(ctx bide.Context, _ string) (string, error) {
				// begin person
				answer, err := bide.Receive[string](ctx, "approved?", bide.Timeout(48*time.Hour))
				if errors.Is(err, bide.ErrTimeout) {
					answer, err = "no", nil // nobody spoke up for two days
				}
				// end person
				return answer, err
			})
			e.work(invoice)
			h := start(e, invoice, "")
			began, want, took := time.Now(), "no", 48*time.Hour
			time.Sleep(26 * time.Hour)
			if answers {
				want, took = "yes", 26*time.Hour
				e.ok(e.client.Signal(e.Context(), h.ID(), "approved?", "yes"))
			}
			if answer, err := result(e, h); answer != want || err != nil || time.Since(began).Round(time.Second) != took {
				e.Errorf("%q, %v after %v; want %q after %v", answer, err, time.Since(began), want, took)
			}
		})
	}
}

func (s *rulesService) film(context.Context, string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls["fetch"]++
	return "film", nil
}
func (s *rulesService) cancel(context.Context, string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls["cancel"]++
	return nil
}

func TestDocsJob(t *testing.T) {
	for _, canceled := range []bool{false, true} {
		inBubble(t, func(e *env) {
			service := &rulesService{calls: map[string]int{}}
			render := bide.Define("render", func(ctx bide.Context, script string) (string, error) {
				// begin job
				film, err := bide.Job[string, renderJob, string]{
					Submit: func(ctx context.Context) (string, error) { return service.submit(ctx, script) },
					Status: service.job,
					Done:   renderJob.isDone,
					Fetch:  service.film,
					Cancel: service.cancel, // when the run is canceled
				}.Run(ctx, "render", bide.ETA{}, bide.Timeout(24*time.Hour))
				// end job
				return film, err
			})
			e.work(render)
			h := start(e, render, "script")
			time.Sleep(5 * time.Minute)
			want := map[string]int{"fetch": 1}
			if canceled {
				want = map[string]int{"cancel": 1}
				e.ok(e.client.Cancel(e.Context(), h.ID(), ""))
			}
			film, err := result(e, h)
			if canceled != errors.Is(err, bide.ErrCanceled) || !canceled && (film != "film" || err != nil) || !maps.Equal(service.calls, want) {
				e.Errorf("canceled %v: %q, %v; calls %v", canceled, film, err, service.calls)
			}
			if took := time.Since(service.began); !canceled && took > 10*time.Minute+5*time.Second || service.asked[0] == 0 {
				e.Errorf("after %v; checks at %v", took, service.asked)
			}
		})
	}
}
