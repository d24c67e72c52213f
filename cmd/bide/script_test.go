package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/server"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"bide": main, "testworker": testworker})
}

// scriptsWithin is when scripts that wait for what does not come are ended, so that
// their output shows what it was.
const (
	scriptsWithin  = 5 * time.Minute
	eventuallyIsBy = time.Minute
)

// TestScripts runs testdata/*.txt, each with a service of its own at $URL. They
// are processes that really wait, since no virtual time reaches across processes:
// intervals are 10 ms, and what cannot be shorter stays below 2 s in all.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		RequireExplicitExec: true,
		Cmds:                map[string]func(*testscript.TestScript, bool, []string){"eventually": eventually},
		Deadline:            time.Now().Add(scriptsWithin),
		Setup: func(e *testscript.Env) error {
			s := httptest.NewServer(newJobs())
			e.Defer(s.Close)
			// Under -race a process would linger for a second at its end.
			e.Vars = append(e.Vars, "URL="+s.URL, "GORACE=atexit_sleep_ms=0")
			return nil
		},
	})
}

// eventually REGEXP COMMAND... runs the command until its output matches: what
// another process does takes its time.
func eventually(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: eventually REGEXP COMMAND...")
	}
	want := regexp.MustCompile("(?m)" + args[0])
	for deadline := time.Now().Add(eventuallyIsBy); ; {
		err := ts.Exec(args[1], args[2:]...)
		if err == nil && want.MatchString(ts.ReadFile("stdout")) {
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("it does not come; at last: %v\n%s%s", err, ts.ReadFile("stdout"), ts.ReadFile("stderr"))
		}
		<-time.After(lookAround)
	}
}

// lookAround is how often a script looks whether another process has come along.
const lookAround = 30 * time.Millisecond

// jobs is a service that is a while at work.
type jobs struct {
	http.ServeMux

	mu    sync.Mutex
	asked map[string]int // by path and query
}

func newJobs() *jobs {
	j := &jobs{asked: map[string]int{}}
	// Done at the n-th request.
	j.HandleFunc("/done/{n}", func(w http.ResponseWriter, r *http.Request) {
		n, _ := strconv.Atoi(r.PathValue("n"))
		asked := j.count(r)
		state := "running"
		if asked >= n {
			state = "completed"
		}
		answer(w, 200, `{"status":%q,"asked":%d}`, state, asked)
	})
	j.HandleFunc("/status/{code}", func(w http.ResponseWriter, r *http.Request) {
		code, _ := strconv.Atoi(r.PathValue("code"))
		answer(w, code, `{"code":%d}`, code)
	})
	j.HandleFunc("/failed", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, 200, `{"status":"failed","why":"out of \u001b[31mpaper"}`)
	})
	j.HandleFunc("/text", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		fmt.Fprint(w, "all is well\n")
	})
	// What came, so that a script can see it.
	j.HandleFunc("/echo", func(w http.ResponseWriter, r *http.Request) {
		length := r.ContentLength
		answer(w, 200, `{"method":%q,"type":%q,"length":%d,"key":%t}`, r.Method, r.Header.Get("Content-Type"), length, r.Header.Get("X-Key") == "hunter22")
	})
	j.HandleFunc("/deny", func(w http.ResponseWriter, r *http.Request) {
		answer(w, 401, `{"refused":%q}`, r.Header.Get("X-Key")+r.URL.RawQuery)
	})
	return j
}

// count counts the requests of a URL, from 1.
func (j *jobs) count(r *http.Request) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.asked[r.URL.String()]++
	return j.asked[r.URL.String()]
}

func answer(w http.ResponseWriter, status int, format string, args ...any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	fmt.Fprintf(w, format, args...)
}

func TestPlace(t *testing.T) {
	for url, want := range map[string]string{
		"https://user:pw@example.org/jobs/7?token=x#y": "https://example.org/jobs/7",
		"http://example.org/":                          "http://example.org",
		"http://example.org?key=x":                     "http://example.org",
		"${env:BASE}/jobs":                             "${env:BASE}/jobs",
		"https://example.org/a@b":                      "https://example.org/a@b",
	} {
		if got := place(url); got != want {
			t.Errorf("place(%q) = %q, want %q", url, got, want)
		}
	}
}

func TestPlain(t *testing.T) {
	if got := plain("a\x1b[31mb\r\nc\u009bd\u202e"); strings.ContainsAny(got, "\x1b\r\n\u009b\u202e") || !strings.HasPrefix(got, "a [31mb") {
		t.Errorf("plain: %q", got)
	}
}

func TestNotATerminal(t *testing.T) {
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if newScreen(f).live() {
		t.Error("a file is taken for a terminal")
	}
}

// A key was not used before it was made, though its use is noted to the hour.
func TestLastUse(t *testing.T) {
	made := time.Date(2026, 11, 21, 14, 1, 0, 0, time.UTC)
	for used, want := range map[time.Time]time.Time{
		{}:                             {},
		made.Truncate(time.Hour):       made,
		made.Add(time.Hour):            made.Add(time.Hour),
		made.Add(-30 * 24 * time.Hour): made,
	} {
		if got := lastUse(&server.Key{CreatedAt: made, LastUsedAt: used}); !got.Equal(want) {
			t.Errorf("used %v: %v, want %v", used, got, want)
		}
	}
}

func TestStoppedLoop(t *testing.T) {
	stopped := bide.LoopState{Name: "a", Stopped: true, NextAt: time.Now().Add(time.Hour)}
	if got := standingOf(&stopped) + upcoming(&stopped, time.Now()); got != "stopped" {
		t.Errorf("a loop that was stopped shows as %q", got)
	}
	if got := standingOf(&bide.LoopState{Name: "a"}); got != waiting {
		t.Errorf("a new loop shows as %q", got)
	}
}
