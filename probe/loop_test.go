package probe_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/probe"
	"github.com/bide-dev/bide/sqlite"
)

// looped runs a loop of the service every minute, for four and a half, and returns
// how it stands then.
func looped(t *testing.T, handler http.HandlerFunc, spec probe.LoopSpec) (s bide.LoopState, answer probe.Observation) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		spec.Name, spec.URL, spec.Every, spec.Exact = "news", serviceURL, probe.Duration(time.Minute), true
		loop, err := probe.Loop(spec, []probe.Option{serve(t, handler).transport(t)}, bide.Queue("other"))
		if err != nil {
			t.Fatal(err)
		}
		store, err := sqlite.Open(":memory:")
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		worker := bide.NewWorker(store, bide.WorkerConfig{Queues: []string{"other"}, Logger: slog.New(slog.DiscardHandler)})
		worker.Register(loop)
		err = worker.While(t.Context(), func(ctx context.Context) error {
			time.Sleep(4*time.Minute + 30*time.Second)
			handle := bide.NewClient(store).Loop("news")
			if s, err = handle.State(ctx); err == nil {
				_, err = handle.Value(ctx, "answer", &answer)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	})
	return s, answer
}

// The answers, the conditions and the failures of a spec become outcomes of its loop.
func TestLoopSpecOutcomes(t *testing.T) {
	const good, bad = `{"ok":true,"errors":1}`, `{"ok":false,"errors":7}`
	for _, c := range []struct {
		name    string
		spec    probe.LoopSpec
		answers []reply // the last for good
		want    string  // outcomes
		err     string
	}{
		{"status alone", probe.LoopSpec{}, []reply{{200, good, nil}, {202, good, nil}, {200, bad, nil}, {204, "", nil}}, "cccc", ""},
		{"refused", probe.LoopSpec{}, []reply{{200, good, nil}, {500, "", nil}}, "cff", "500"},
		{"recovers", probe.LoopSpec{RunImmediately: true}, []reply{{500, "", nil}, {200, good, nil}}, "fcuu", "500"},
		{"until", probe.LoopSpec{Spec: probe.Spec{Until: "body.ok == true"}}, []reply{{200, good, nil}, {200, bad, nil}}, "cff", `until is false: 200 {"ok":false,"errors":7}`},
		{"long until", probe.LoopSpec{Spec: probe.Spec{Until: "status == 201"}}, []reply{{200, strings.Repeat("é", 500), nil}}, "ff", "..."},
		{"fail_when", probe.LoopSpec{FailWhen: "body.errors > 3.0", MaxMultiplier: 1}, []reply{{200, good, nil}, {200, bad, nil}}, "cfff", ""},
		{"as before", probe.LoopSpec{}, []reply{{200, good, map[string]string{"ETag": `"1"`}}, {304, "", nil}}, "cuuu", ""},
		{"condition", probe.LoopSpec{Condition: `now < timestamp("1999-12-31T23:00:00Z")`}, []reply{{200, good, nil}}, "----", ""},
		{"condition that holds", probe.LoopSpec{Condition: `now.getFullYear("Europe/Berlin") == 2000`}, []reply{{200, good, nil}}, "cuuu", ""},
		{"condition that cannot be told", probe.LoopSpec{Condition: `now.getHours("Nowhere/At_all") == 1`}, []reply{{200, good, nil}}, "----", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := 0
			s, answer := looped(t, func(w http.ResponseWriter, _ *http.Request) {
				c.answers[min(n, len(c.answers)-1)].write(w)
				n++
			}, c.spec)
			if s.Outcomes != c.want {
				t.Errorf("outcomes %s, want %s", s.Outcomes, c.want)
			}
			if c.err != "" && (s.LastError == nil || !strings.Contains(s.LastError.Message, c.err)) {
				t.Errorf("%+v, want %s", s.LastError, c.err)
			}
			if strings.Contains(c.want, "c") != (answer.Status != 0) {
				t.Errorf("the last answer is %+v", answer)
			}
		})
	}
}

// What does not fit is refused by the name of its field.
func TestInvalidLoopSpecs(t *testing.T) {
	sound := probe.LoopSpec{Name: "a", Every: probe.Duration(time.Second), Spec: probe.Spec{URL: serviceURL}}
	if _, err := probe.Loop(sound, nil); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		spoil func(*probe.LoopSpec)
		field string
	}{
		{func(s *probe.LoopSpec) { s.Name = "" }, "name"},
		{func(s *probe.LoopSpec) { s.Name = "a b" }, "name"},
		{func(s *probe.LoopSpec) { s.Name = "a\xff" }, "name"},
		{func(s *probe.LoopSpec) { s.Name = strings.Repeat("x", 201) }, "name"},
		{func(s *probe.LoopSpec) { s.Every = 0 }, "every"},
		{func(s *probe.LoopSpec) { s.Every = 1 }, "every"},
		{func(s *probe.LoopSpec) { s.Every = -1 }, "every"},
		{func(s *probe.LoopSpec) { s.MaxMultiplier = -1 }, "max_multiplier"},
		{func(s *probe.LoopSpec) { s.URL = "" }, "url"},
		{func(s *probe.LoopSpec) { s.Timeout = -1 }, "timeout"},
		{func(s *probe.LoopSpec) { s.Condition = "now." }, "condition"},
		{func(s *probe.LoopSpec) { s.Condition = "status == 200" }, "condition"},
		{func(s *probe.LoopSpec) { s.Condition = "now" }, "condition"},
		{func(s *probe.LoopSpec) { s.FailWhen = " " }, "fail_when"},
		{func(s *probe.LoopSpec) { s.FailWhen = "status" }, "fail_when"},
		{func(s *probe.LoopSpec) { s.Until = "body.ok" }, "until"},
		{func(s *probe.LoopSpec) { s.Accept = []probe.Acceptor{{State: probe.Success}} }, "accept[0].when"},
		{func(s *probe.LoopSpec) {
			s.FailWhen, s.Accept = "true", []probe.Acceptor{{State: probe.Success, When: "true"}, {State: "x"}}
		}, "accept[1].state"},
	} {
		spec := sound
		c.spoil(&spec)
		_, err := probe.Loop(spec, nil)
		if e, ok := errors.AsType[*bide.InvalidError](err); !ok || e.Field != c.field {
			t.Errorf("%+v: %v, want %s", spec, err, c.field)
		}
	}
}

// One text, as JSON and as YAML, is one LoopSpec.
func TestLoopSpecTexts(t *testing.T) {
	want := probe.LoopSpec{Name: "news", Every: probe.Duration(30 * time.Second), Condition: "true", Exact: true, MaxMultiplier: 4, RunImmediately: true,
		FailWhen: "false", Spec: probe.Spec{URL: serviceURL, Until: "true", Timeout: probe.Duration(time.Minute)}}
	const text = `{"name":"news","every":"30s","condition":"true","exact":true,"max_multiplier":4,"run_immediately":true,"fail_when":"false",` +
		`"url":"http://service.test/job","until":"true","timeout":"1m0s"}`
	if data, err := json.Marshal(want); err != nil || string(data) != text {
		t.Errorf("JSON is %s, %v", data, err)
	}
	if got, err := probe.ParseLoop([]byte(text)); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	var got probe.LoopSpec
	decoder := yaml.NewDecoder(strings.NewReader(text))
	decoder.KnownFields(true)
	if err := decoder.Decode(&got); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
}

// Whatever a text says, it is taken or refused by name, and what is taken is taken
// again as it was kept.
func FuzzParseLoop(f *testing.F) {
	for _, seed := range []string{
		`{}`, `[]`, `null`, `{"every":30}`, `{"URL":"http://x"}`, `{"accept":[{"x":1}]}`, `{"accept":[{"State":"retry","when":"true"}]}`,
		`{"name":"a","every":"10ms","url":"http://x","timeout":"2562047h","max_multiplier":9223372036854775807,"exact":false}`,
		`{"name":"a","every":"2562047h","url":"http://x","run_immediately":true,"fail_when":"status > 300","condition":"now > timestamp('2000-01-01T00:00:00Z')"}`,
		`{"name":"a","every":"1s","url":"http://x","accept":[{"state":"success","when":"true"}],"headers":{"a":"b"},"not_found_grace":"1s"}`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		spec, err := probe.ParseLoop([]byte(text))
		if err == nil {
			_, err = probe.Loop(spec, []probe.Option{probe.Guard()})
		}
		if err != nil {
			if e, ok := errors.AsType[*bide.InvalidError](err); !ok || e.Reason == "" {
				t.Fatalf("%s: %v", text, err)
			}
			return
		}
		data, err := json.Marshal(spec)
		if err != nil {
			t.Fatal(err)
		}
		again, err := probe.ParseLoop(data)
		if err != nil {
			t.Fatalf("%s was taken, but not as %s: %v", text, data, err)
		}
		if kept, _ := json.Marshal(again); string(kept) != string(data) {
			t.Fatalf("%s is kept as %s", data, kept)
		}
	})
}
