package api

import (
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bide-dev/bide"
)

func approving(link *string) *bide.Workflow[string, decision] {
	return bide.Define("approving", func(ctx bide.Context, what string) (decision, error) {
		hook, err := bide.NewWebhook[decision](ctx, "verdict")
		if err != nil {
			return decision{}, err
		}
		*link = hook.URL()
		if err := bide.Publish(ctx, QuestionKey, what); err != nil {
			return decision{}, err
		}
		return hook.Receive(ctx, bide.Timeout(24*time.Hour))
	})
}

func TestApproval(t *testing.T) {
	for choice, approved := range map[string]bool{"approve": true, "reject": false} {
		inBubble(t, func(s *site) {
			var link string
			s.work(approving(&link))
			s.call("POST", "/v1/runs", `{"workflow":"approving","id":"r","input":"Buy <b>chairs</b>?"}`, "Prefer: wait=1").want(202)
			page := "/v1/approvals" + link[strings.LastIndex(link, "/"):]
			for range 3 { // looking decides nothing
				a := s.call("GET", page+"?by=ann%22%3E", "").want(200, "Buy &lt;b&gt;chairs&lt;/b&gt;?", `value="ann&#34;&gt;"`, "run r", `method="post"`)
				a.head("Cache-Control", "no-store").head("Referrer-Policy", "same-origin").head("Content-Type", "text/html; charset=utf-8")
				if p := a.header.Get("Content-Security-Policy"); !strings.Contains(p, "default-src 'none'") || !strings.Contains(p, "frame-ancestors 'none'") {
					t.Error(p)
				}
				if strings.Contains(string(a.body), "<script") {
					t.Errorf("%s", a.body)
				}
			}
			synctest.Wait()
			s.call("GET", "/v1/runs/r", "").want(200, `"waiting"`)
			form := func(body string) *answer {
				return s.call("POST", page, body, "Content-Type: application/x-www-form-urlencoded")
			}
			form("decision=maybe").want(400, "approve")
			form("").want(400)
			form("decision=approve&comment=" + strings.Repeat("x", 70<<10)).want(413)
			form("decision=approve&comment=" + strings.Repeat("x", 20<<10)).want(400)
			form("decision=approve&by=%ff").want(400)
			form("decision=%zz").want(400)
			form("decision="+choice+"&by=ann&comment=so+be+it").want(200, "is kept")
			s.call("GET", "/v1/runs/r/result?wait=5", "").want(200, `"by":"ann"`, `"comment":"so be it"`)
			var d decision
			if s.call("GET", "/v1/runs/r/result", "").into(&d); d.Approved != approved {
				t.Errorf("%+v", d)
			}
			form("decision=approve").want(410, "Too late")
			s.call("GET", page, "").want(410, "Too late")
			s.call("GET", "/v1/approvals/none", "").want(404, "nothing to decide").head("Content-Type", "text/html; charset=utf-8")
		})
	}
}

// A link that a signing service was given is none for people.
func TestApprovalOfSigned(t *testing.T) {
	inBubble(t, func(s *site) {
		var link string
		s.work(bide.Define("signed", func(ctx bide.Context, _ any) (any, error) {
			hook, err := bide.NewWebhook[any](ctx, "verdict", bide.VerifiedBy("github"))
			if err != nil {
				return nil, err
			}
			link = hook.URL()
			return hook.Receive(ctx)
		}))
		s.call("POST", "/v1/runs", `{"workflow":"signed","id":"r"}`, "Prefer: wait=1").want(202)
		page := "/v1/approvals" + link[strings.LastIndex(link, "/"):]
		s.call("GET", page, "").want(404)
		s.call("POST", page, "decision=approve", "Content-Type: application/x-www-form-urlencoded").want(404)
	})
}

// What a page asks if the run does not say.
func TestQuestion(t *testing.T) {
	for want, run := range map[string]bide.Run{
		"Approve deploy?": {Workflow: "deploy"},
		"build 7":         {Workflow: "deploy", Progress: &bide.ProgressState{Message: "build 7"}},
		"sure?":           {Values: map[string]json.RawMessage{"question": json.RawMessage(`"sure?"`)}},
		`{"a":1}`:         {Values: map[string]json.RawMessage{"question": json.RawMessage(`{"a":1}`)}},
	} {
		if got := question(&run); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
