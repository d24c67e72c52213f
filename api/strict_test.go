package api

import (
	"strings"
	"testing"
	"time"

	"github.com/bide-dev/bide"
)

// Whatever is said in a request is heeded or refused, by every route: nothing is
// passed over in silence.
func TestNothingIsLost(t *testing.T) {
	inLoopBubble(t, func(s *site, _ *asked) {
		s.call("POST", "/v1/runs", `{"workflow":"w","id":"r"}`).want(202)
		s.call("PUT", "/v1/loops/x", newsSpec).want(201)
		before := s.call("GET", "/v1/runs/r", "").run()
		values := map[string]bool{"/signal/{name}": true, "/complete": true} // that are any JSON
		for _, route := range s.h.routes() {
			path := strings.NewReplacer("{id}", "r", "{wait}", "go", "{name}", "x", "{token}", "none").Replace(route.path)
			if strings.Contains(path, "approvals") { // a form, see TestApproval
				continue
			}
			s.call(route.method, path+"?nonsense=1", "").refused(400, "invalid-input", `"field":"nonsense"`)
			s.call(route.method, path+"?%zz", "").refused(400, "invalid-input", `"field":"query"`)
			for _, p := range route.params {
				if name, list := strings.CutSuffix(p, "..."); !list {
					s.call(route.method, path+"?"+name+"=1&"+name+"=1", "").refused(400, "invalid-input", `"field":"`+name+`"`, "more than once")
				}
			}
			if route.method == "GET" {
				continue
			}
			s.call(route.method, path, `{broken`).refused(400, "invalid-input", `"field":"body"`)
			s.call(route.method, path, `{"a":{"typo":1,"\u0074ypo":2}}`).refused(400, "invalid-input", `"field":"typo"`, "twice")
			s.call(route.method, path, `{"a":1}`, "Content-Type: text/plain").refused(415, "unsupported-media-type")
			any := route.method == "PUT"
			for end := range values {
				any = any || strings.HasSuffix(route.path, end)
			}
			if !any {
				s.call(route.method, path, `{"typo":1}`).refused(400, "invalid-input", `"field":"typo"`)
				s.call(route.method, path, `["typo"]`).refused(400, "invalid-input", `"field":"body"`)
			}
		}
		if after := s.call("GET", "/v1/runs/r", "").run(); after.Version != before.Version || after.State != before.State {
			t.Errorf("%+v, before %+v", after, before)
		}
		s.call("GET", "/v1/loops/x", "").want(200, `"stopped":false`, `"paused":false`)
		s.call("POST", "/v1/runs", `{"workflow":"greet","workflow":"sig"}`).refused(400, "invalid-input", `"field":"workflow"`, "twice")
		s.call("POST", "/v1/runs", `{"":1}`).refused(400, "invalid-input", `\"\" is not known`)
		s.call("DELETE", "/v1/runs/r?purg=true", "").refused(400, "invalid-input", `"field":"purg"`, "purge")
		var list runList
		if s.call("GET", "/v1/runs", "").into(&list); len(list.Runs) != 2 { // and that of the loop
			t.Errorf("%d runs", len(list.Runs))
		}
	})
}

func TestRepeated(t *testing.T) {
	for data, want := range map[string]string{
		`{}`:                                "",
		`[]`:                                "",
		`"a"`:                               "",
		`12`:                                "",
		`{"a":1,"b":2}`:                     "",
		`{"a":"a","b":["a","a",{"a":1}]}`:   "",
		`[{"a":1},{"a":1}]`:                 "",
		`{"a":{"a":{"a":1}},"b":{"a":2}}`:   "",
		`{"a":"\"a\":1,\"a\"","b\\\"":"}"}`: "",
		`{"a":1,"A":2}`:                     "",
		`{"a":1,"a":1}`:                     "a",
		`{"a":[1,{"x":{}}],"a":1}`:          "a",
		`{"a":{},"b":[],"a":1}`:             "a",
		`{"x":[{"y":1,"b":{},"y":2}]}`:      "y",
		`{"\u0061":1,"a":2}`:                "a",
		`{"a\\":1,"b":2,"a\\":3}`:           `a\`,
	} {
		if name, twice := repeated([]byte(data)); twice != (want != "") || twice && name != want {
			t.Errorf("%s: %q %v, want %q", data, name, twice, want)
		}
	}
}

// A preference is told of where it was applied, and caches are told of it on every
// answer that it can change.
func TestPrefer(t *testing.T) {
	inBubble(t, func(s *site) {
		s.work(patient, greet)
		s.call("POST", "/v1/runs", `{"workflow":"patient","id":"p"}`, "Prefer: wait=1").want(202).head("Vary", "Prefer").head("Preference-Applied", "wait=1")
		s.call("POST", "/v1/runs", `{"workflow":"patient","id":"late","timeout":"5s"}`).want(202).head("Vary", "Prefer").head("Preference-Applied", "")
		s.call("POST", "/v1/runs", `{"workflow":7}`, "Prefer: wait=1").want(400).head("Vary", "Prefer").head("Preference-Applied", "")
		for _, path := range []string{"", "/result"} {
			get := func(query, prefer string, want int, applied string) {
				s.Helper()
				s.call("GET", "/v1/runs/p"+path+query, "", prefer).want(want).head("Vary", "Prefer").head("Preference-Applied", applied)
			}
			open := map[string]int{"": 200, "/result": 202}[path]
			get("", "Prefer: wait=2", open, "wait=2")
			get("", "Prefer: wait=0", open, "")
			get("", "Prefer: respond-async", open, "")
			get("?wait=1", "Prefer: wait=2", open, "") // the parameter was heeded
			get("?wait=x", "Prefer: wait=2", 400, "")
			s.call("GET", "/v1/runs/none"+path, "", "Prefer: wait=5").refused(404, "not-found").head("Vary", "Prefer").head("Preference-Applied", "")
		}
		tag := s.call("GET", "/v1/runs/p", "").header.Get("ETag")
		s.call("GET", "/v1/runs/p", "", "If-None-Match: "+tag, "Prefer: wait=2").want(304).head("Vary", "Prefer").head("Preference-Applied", "wait=2")
		s.call("GET", "/v1/runs/late/result", "", "Prefer: wait=9").refused(422, "run-failed").head("Vary", "Prefer").head("Preference-Applied", "wait=9")
		s.call("GET", "/v1/runs/late/result", "").refused(422, "run-failed").head("Vary", "Prefer").head("Preference-Applied", "")
		s.call("POST", "/v1/runs/p/cancel", "").head("Vary", "") // it heeds none
	})
	inBubbleWith(t, Config{MaxWaiters: 1}, func(s *site) {
		s.work(patient)
		s.call("POST", "/v1/runs", `{"workflow":"patient","id":"p"}`).want(202)
		s.after(time.Second, func() {
			s.call("GET", "/v1/runs/p", "", "Prefer: wait=5").refused(503, "overloaded").head("Vary", "Prefer").head("Preference-Applied", "")
		})
		s.call("GET", "/v1/runs/p/result", "", "Prefer: wait=5").want(202)
	})
}

// An id may be an address: what is escaped in a path is not taken for a way.
func TestIDsOfAllKinds(t *testing.T) {
	inBubble(t, func(s *site) {
		for _, id := range []string{"https://x.org/job", "a//b", "x/../y", "a/", "/a", "...", "a%2Fb", "ü;&?#+"} {
			a := s.call("POST", "/v1/runs", `{"workflow":"w","id":"`+id+`"}`).want(202)
			at := a.header.Get("Location")
			if got := s.call("GET", at, "").want(200).run(); got.ID != id || got.Links.Self != at {
				t.Errorf("%q is at %s: %+v", id, at, got)
			}
			s.call("GET", at+"/history", "").want(200)
			s.call("POST", at+"/terminate", "").want(200)
			if run, err := s.store.Run(s.Context(), id); err != nil || run.State != bide.Terminated {
				t.Errorf("%q: %v %v", id, run.State, err)
			}
		}
	})
}
