package probe_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/probe"
	"github.com/bide-dev/bide/wait"
)

// Each rule, where it is the first to fit.
func TestRules(t *testing.T) {
	failure := []probe.Acceptor{{State: probe.Failure, When: `body.state == "failed"`, Message: `string(body.why)`}}
	spec := func(until string, accept ...probe.Acceptor) probe.Spec {
		return probe.Spec{Until: until, Accept: accept}
	}
	retryAfter := map[string]string{"Retry-After": "7"}
	for _, c := range []struct {
		name  string
		spec  probe.Spec
		reply reply
		want  wait.Outcome
		text  string // in the body, the message or the error
	}{
		{"200", spec(""), reply{200, `{"a":1}`, nil}, wait.Succeeded, `{"a":1}`},
		{"201", spec(""), reply{201, ``, nil}, wait.Succeeded, ""},
		{"204", spec(""), reply{204, ``, nil}, wait.Succeeded, ""},
		{"202", spec(""), reply{202, `{}`, nil}, wait.Pending, ""},
		{"text", spec(""), reply{200, `all is well`, map[string]string{"Content-Type": "text/plain"}}, wait.Succeeded, "all is well"},

		{"condition true", spec(`body.state == "done"`), reply{200, `{"state":"done"}`, nil}, wait.Succeeded, "done"},
		{"condition false", spec(`body.state == "done"`), reply{200, `{"state":"runs"}`, nil}, wait.Pending, "runs"},
		{"condition true on 202", spec(`body.state == "done"`), reply{202, `{"state":"done"}`, nil}, wait.Succeeded, ""},
		{"no such key", spec(`body.state == "done"`), reply{200, `{}`, nil}, wait.Transient, "no such key"},
		{"not JSON", spec(`body.state == "done"`), reply{200, `<html>`, nil}, wait.Transient, "until"},
		{"has", spec(`has(body.state) && body.state == "done"`), reply{200, `{}`, nil}, wait.Pending, ""},
		{"numbers of two kinds", spec(`body.n >= 3`), reply{200, `{"n":3}`, nil}, wait.Succeeded, ""},
		{"header", spec(`headers["x-state"] == "done"`), reply{200, ``, map[string]string{"X-State": "done"}}, wait.Succeeded, ""},
		{"text condition", spec(`text.contains("READY")`), reply{200, `it is READY`, nil}, wait.Succeeded, ""},
		{"costly at run time", spec(`["h", "i", "j", "k"].exists(c, text.matches("(a|b|c)*d(e|f|g)*" + c))`), reply{200, strings.Repeat("abc", 300_000), nil}, wait.Transient, "cost"},
		{"a condition is for a 2xx", spec(`body.gone == true`), reply{410, `{"gone":true}`, nil}, wait.Failed, "410"},
		{"unless it asks for status", spec(`status == 404`), reply{404, ``, nil}, wait.Succeeded, ""},
		{"which others still need not fit", spec(`status == 404`), reply{401, ``, nil}, wait.Failed, "401"},

		{"failure acceptor", spec("", failure...), reply{200, `{"state":"failed","why":"no paper"}`, nil}, wait.Failed, "no paper"},
		{"on a 500 too", spec("", failure...), reply{500, `{"state":"failed","why":"no paper"}`, nil}, wait.Failed, "no paper"},
		{"passed over on an error page", spec("", failure...), reply{500, `<html>`, nil}, wait.Transient, "500"},
		{"passed over on 401", spec("", failure...), reply{401, ``, nil}, wait.Failed, "401"},
		{"not on a 2xx", spec("", failure...), reply{200, `[]`, nil}, wait.Transient, "accept[0].when"},
		{"success acceptor", spec(`false`, probe.Acceptor{State: probe.Success, When: `status == 409`}), reply{409, `{"a":1}`, nil}, wait.Succeeded, `{"a":1}`},
		{"retry acceptor", spec(``, probe.Acceptor{State: probe.Retry, When: `status == 401`, Message: `"not yet let in"`}), reply{401, ``, nil}, wait.Pending, "not yet let in"},
		{"the first acceptor", spec(``, probe.Acceptor{State: probe.Retry, When: `true`}, probe.Acceptor{State: probe.Failure, When: `true`}), reply{200, ``, nil}, wait.Pending, ""},

		{"304", spec(""), reply{304, ``, nil}, wait.Pending, ""},
		{"304 to an acceptor", spec("", probe.Acceptor{State: probe.Success, When: `unchanged`}), reply{304, ``, nil}, wait.Succeeded, ""},
		{"303 without a place", spec(""), reply{303, ``, nil}, wait.Transient, "without saying where"},
		{"300", spec(""), reply{300, ``, nil}, wait.Transient, "300"},

		{"429", spec(""), reply{429, ``, nil}, wait.Throttled, "429"},
		{"429 with a hint", spec(""), reply{429, ``, retryAfter}, wait.Throttled, "7s"},
		{"503 with a hint", spec(""), reply{503, ``, retryAfter}, wait.Throttled, "7s"},
		{"403 with a hint", spec(""), reply{403, ``, retryAfter}, wait.Throttled, "7s"},
		{"403 of a spent quota", spec(""), reply{403, ``, map[string]string{"RateLimit": `"default";r=0;t=30`}}, wait.Throttled, "RateLimit: 30s"},
		{"403 of a spent quota, old draft", spec(""), reply{403, ``, map[string]string{"RateLimit": `limit=10, remaining=0, reset=30`}}, wait.Throttled, "RateLimit: 30s"},
		{"403 of a malformed quota", spec(""), reply{403, ``, map[string]string{"RateLimit": `"default;r=0;t=30`}}, wait.Failed, "403"},
		{"403", spec(""), reply{403, ``, nil}, wait.Failed, "403"},

		{"408", spec(""), reply{408, ``, nil}, wait.Transient, "408"},
		{"425", spec(""), reply{425, ``, nil}, wait.Transient, "425"},
		{"500", spec(""), reply{500, ``, nil}, wait.Transient, "500"},
		{"502", spec(""), reply{502, ``, nil}, wait.Transient, "502"},
		{"503", spec(""), reply{503, ``, nil}, wait.Transient, "503"},
		{"504", spec(""), reply{504, ``, nil}, wait.Transient, "504"},
		{"501", spec(""), reply{501, ``, nil}, wait.Failed, "501"},
		{"404", spec(""), reply{404, ``, nil}, wait.Pending, ""},
		{"400", spec(""), reply{400, `{"error":"no such field"}`, nil}, wait.Failed, "400"},
		{"401", spec(""), reply{401, ``, nil}, wait.Failed, "401"},
		{"410", spec(""), reply{410, ``, nil}, wait.Failed, "410"},
		{"422", spec(""), reply{422, ``, nil}, wait.Failed, "422"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newProbe(t, serve(t, always(c.reply)), c.spec)
				o, err := p.Check(t.Context())
				got, text := wait.Pending, o.Content()+o.Message
				switch {
				case err != nil:
					got, _ = wait.Judge(err)
					text = err.Error()
				case o.Done():
					got = wait.Succeeded
				}
				if got != c.want || !strings.Contains(text, c.text) {
					t.Errorf("got %v, %.300q; want %v with %q", got, text, c.want, c.text)
				}
				if err == nil && (o.Status != c.reply.status || o.FetchedAt.IsZero()) {
					t.Errorf("observation %+v", o)
				}
			})
		})
	}
}

func TestNotFoundIsPendingForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProbe(t, serve(t, always(reply{404, "", nil})), probe.Spec{NotFoundGrace: probe.Duration(10 * time.Second)})
		for _, c := range []struct {
			pause time.Duration
			fatal bool
		}{{0, false}, {9 * time.Second, false}, {2 * time.Second, true}} {
			time.Sleep(c.pause)
			_, err := p.Check(t.Context())
			if outcome, _ := wait.Judge(err); (err != nil) != c.fatal || err != nil && outcome != wait.Failed {
				t.Errorf("after another %v: %v, want an error: %v", c.pause, err, c.fatal)
			}
		}
	})
}

func TestNotFoundAfterFoundIsFatal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		statuses := []int{404, 202, 404}
		p := newProbe(t, serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(statuses[0])
			statuses = statuses[1:]
		}), probe.Spec{})
		for i, fatal := range []bool{false, false, true} {
			_, err := p.Check(t.Context())
			if outcome, _ := wait.Judge(err); (err != nil) != fatal || fatal && outcome != wait.Failed {
				t.Errorf("check %d: %v, want an error: %v", i+1, err, fatal)
			}
		}
	})
}

// The result is where a 303 says; the status may be ahead of it.
func TestSeeOther(t *testing.T) {
	result := 0
	handler := func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/job":
			reply{303, "", map[string]string{"Location": "/result?part=1"}}.write(w)
		case "/result":
			if result++; result < 3 {
				w.WriteHeader(404)
				return
			}
			reply{200, `{"pages":12}`, nil}.write(w)
		}
	}
	o, checks, err := polled(t, handler, probe.Spec{Until: `body.never == 1`, Headers: map[string]string{"X-Key": "k"}},
		bide.Every(time.Second), bide.Timeout(time.Minute))
	if err != nil || string(o.Body) != `{"pages":12}` || !o.Done() {
		t.Errorf("%+v, %v", o, err)
	}
	if got := outcomes(checks); got != "transient@0s transient@1s succeeded@3s " {
		t.Errorf("checks: %s", got)
	}
}

func TestSeeOtherToARefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProbe(t, serve(t, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/job" {
				reply{303, "", map[string]string{"Location": "/result"}}.write(w)
				return
			}
			w.WriteHeader(403)
		}), probe.Spec{})
		_, err := p.Check(t.Context())
		outcome, _ := wait.Judge(err)
		if e, ok := errors.AsType[*probe.ResultError](err); !ok || e.Transient || outcome != wait.Failed {
			t.Errorf("%v (%v), want a permanent ResultError", err, outcome)
		}
	})
}

// "As before" is asked for with what the service has given, byte for byte, and
// stands for the value that is kept.
func TestConditionalRequests(t *testing.T) {
	const tag, date = `W/"v1"`, "Sat, 21 Nov 2026 08:00:00 GMT"
	var sent []string
	n := 0
	handler := func(w http.ResponseWriter, r *http.Request) {
		sent = append(sent, r.Header.Get("If-None-Match")+r.Header.Get("If-Modified-Since"))
		switch n++; n {
		case 1:
			reply{200, `{"state":"runs"}`, map[string]string{"ETag": tag, "Last-Modified": date}}.write(w)
		case 2, 3:
			w.WriteHeader(304)
		default:
			reply{200, `{"state":"done"}`, nil}.write(w)
		}
	}
	o, checks, err := polled(t, handler, probe.Spec{Until: `body.state == "done"`}, bide.Every(time.Second), bide.NoTimeout{})
	if err != nil || string(o.Body) != `{"state":"done"}` {
		t.Errorf("%+v, %v", o, err)
	}
	for i, want := range []string{"", tag + date, tag + date, tag + date} {
		if sent[i] != want {
			t.Errorf("request %d carried %q, want %q", i+1, sent[i], want)
		}
	}
	if got := string(checks[2].Value); !strings.Contains(got, `"runs"`) || checks[2].Changed {
		t.Errorf("after a 304 the value is %s, changed %v", got, checks[2].Changed)
	}
}

// A condition on the time may become true of an answer that is as before.
func TestConditionOnTimeAsksInFull(t *testing.T) {
	asked := false
	o, checks, err := polled(t, func(w http.ResponseWriter, r *http.Request) {
		asked = asked || r.Header.Get("If-None-Match") != ""
		reply{200, `{}`, map[string]string{"ETag": `"a"`}}.write(w)
	}, probe.Spec{Until: `elapsed >= duration("3s") && attempt > 2`}, bide.Every(time.Second), bide.Exact{}, bide.NoTimeout{})
	if asked || err != nil || !o.Done() || len(checks) != 4 {
		t.Errorf("conditional: %v, %v, %s", asked, err, outcomes(checks))
	}
}

// Outside a poll the Probe itself remembers.
func TestCheckAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("If-None-Match") == `"a"` {
				w.WriteHeader(304)
				return
			}
			reply{202, `{"n":1}`, map[string]string{"ETag": `"a"`}}.write(w)
		})
		p := newProbe(t, s, probe.Spec{})
		first, err := p.Check(t.Context())
		if err != nil || first.Unchanged {
			t.Fatalf("%+v, %v", first, err)
		}
		for range 2 {
			again, err := p.Check(t.Context())
			if err != nil || !again.Unchanged || again.Status != 304 || again.Done() || string(again.Body) != `{"n":1}` {
				t.Errorf("%+v, %v; want as before", again, err)
			}
		}
	})
}

// What the service says of when to ask again reaches the poll.
func TestHints(t *testing.T) {
	for name, c := range map[string]struct {
		first reply
		want  string
	}{
		"Retry-After":              {reply{202, ``, map[string]string{"Retry-After": "20"}}, "pending@0s succeeded@20s "},
		"quota spent":              {reply{200, `{}`, map[string]string{"RateLimit": `"a";r=5;t=1, "b";r=0;t=30`}}, "pending@0s succeeded@30s "},
		"quota spent, in numbers":  {reply{200, `{}`, map[string]string{"RateLimit-Remaining": "0", "RateLimit-Reset": "30"}}, "pending@0s succeeded@30s "},
		"Retry-After before quota": {reply{429, ``, map[string]string{"RateLimit": `"b";r=0;t=30`, "Retry-After": "12"}}, "throttled@0s succeeded@12s "},
		"malformed is nothing":     {reply{200, `{}`, map[string]string{"RateLimit": `b=;r=0;t=30`}}, "pending@0s succeeded@1s "},
		"next_poll_ms":             {reply{202, `{"next_poll_ms":2500}`, map[string]string{"Retry-After": "3"}}, "pending@0s succeeded@2.5s "},
		"next_poll_ms of a 429":    {reply{429, `{"next_poll_ms":2500}`, nil}, "throttled@0s succeeded@2.5s "},
		"next_poll_ms is no time":  {reply{202, `{"next_poll_ms":-5}`, nil}, "pending@0s succeeded@1s "},
	} {
		t.Run(name, func(t *testing.T) {
			n := 0
			_, checks, err := polled(t, func(w http.ResponseWriter, _ *http.Request) {
				if n++; n == 1 {
					c.first.write(w)
					return
				}
				reply{200, `{"done":true}`, nil}.write(w)
			}, probe.Spec{Until: `has(body.done)`}, bide.Every(time.Second), bide.Exact{}, bide.NoTimeout{})
			if got := outcomes(checks); err != nil || got != c.want {
				t.Errorf("%s, %v; want %s", got, err, c.want)
			}
		})
	}
}

// What one answer says of when to ask again is not held against the next.
func TestHintIsOfOneAnswer(t *testing.T) {
	n := 0
	_, checks, err := polled(t, func(w http.ResponseWriter, _ *http.Request) {
		switch n++; n {
		case 1:
			reply{202, ``, map[string]string{"Retry-After": "20", "ETag": `"a"`}}.write(w)
		case 2, 3:
			w.WriteHeader(500)
		}
	}, probe.Spec{}, bide.Every(time.Second), bide.Exact{}, bide.NoTimeout{})
	if got := outcomes(checks); err != nil || got != "pending@0s transient@20s transient@21s succeeded@23s " {
		t.Errorf("%s, %v", got, err)
	}
}

// Progress and ETA pace the strategy that goes by them; what cannot be read says
// nothing.
func TestProgressAndETA(t *testing.T) {
	for name, c := range map[string]struct {
		eta, field string
	}{
		"duration":  {`duration("100s") - elapsed`, `0`},
		"timestamp": {`timestamp(body.eta)`, `"2000-01-01T00:01:40Z"`}, // bubbles begin in 2000
		"string":    {`body.eta`, `"2000-01-01T00:01:40Z"`},
		"neither":   {`body.eta`, `"soon"`},
	} {
		t.Run(name, func(t *testing.T) {
			var began time.Time
			_, checks, err := polled(t, func(w http.ResponseWriter, _ *http.Request) {
				if began.IsZero() {
					began = time.Now()
				}
				if time.Since(began) >= 100*time.Second {
					w.WriteHeader(200)
					return
				}
				reply{202, `{"percent":42,"eta":` + c.field + `}`, nil}.write(w)
			}, probe.Spec{Progress: `body.percent`, ETA: c.eta}, bide.ETA{}, bide.Exact{}, bide.NoTimeout{})
			if err != nil || checks[0].Percent != 42 {
				t.Fatalf("%v, percent %v", err, checks[0].Percent)
			}
			if second := checks[1].StartedAt.Sub(checks[0].StartedAt); (second > 50*time.Second) != (name != "neither") {
				t.Errorf("the second check came after %v", second)
			}
		})
	}
}

func TestPollIntervalIsPolite(t *testing.T) {
	n := 0
	_, checks, err := polled(t, func(w http.ResponseWriter, _ *http.Request) {
		if n++; n < 3 {
			w.WriteHeader(202)
		}
	}, probe.Spec{}, bide.Every(10*time.Millisecond), bide.NoTimeout{})
	if got := outcomes(checks); err != nil || got != "pending@0s pending@1s succeeded@2s " {
		t.Errorf("%s, %v", got, err)
	}
}
