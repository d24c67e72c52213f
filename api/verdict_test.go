package api

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bide-dev/bide"
)

// desk is a run under way, which has made a link and goes on for a day after it.
func (s *site) desk(id string, fn func(bide.Context, *bide.Webhook[decision]) error) (page string) {
	s.Helper()
	var link string
	s.work(bide.Define(id, func(ctx bide.Context, _ any) (any, error) {
		hook, err := bide.NewWebhook[decision](ctx, "verdict")
		if err != nil {
			return nil, err
		}
		link = hook.URL()
		if err := fn(ctx, hook); err != nil {
			return nil, err
		}
		return nil, bide.Sleep(ctx, 24*time.Hour)
	}))
	s.call("POST", "/v1/runs", fmt.Sprintf(`{"workflow":%q,"id":%q}`, id, id), "Prefer: wait=1").want(202)
	return pageOf(link)
}

func pageOf(link string) string { return "/v1/approvals" + link[strings.LastIndex(link, "/"):] }

func (s *site) decide(page, body string) *answer {
	s.Helper()
	return s.call("POST", page, body, "Content-Type: application/x-www-form-urlencoded")
}

func timedOut(err error) error {
	if t := (*bide.TimeoutError)(nil); errors.As(err, &t) {
		return nil
	}
	return errors.Join(errors.New("no timeout"), err)
}

// A run that waits no more takes no decision, whatever else it does.
func TestApprovalTimedOut(t *testing.T) {
	inBubble(t, func(s *site) {
		page := s.desk("brief", func(ctx bide.Context, hook *bide.Webhook[decision]) error {
			_, err := hook.Receive(ctx, bide.Timeout(500*time.Millisecond))
			return timedOut(err)
		})
		s.decide(page, "decision=approve").want(410, "Too late")
		s.call("GET", page, "").want(410, "Too late")
		s.call("GET", "/v1/runs/brief", "").want(200, `"waiting"`)
	})
}

// A run may remind, and wait again: its link is open whenever it waits.
func TestApprovalReminded(t *testing.T) {
	inBubble(t, func(s *site) {
		page := s.desk("remind", func(ctx bide.Context, hook *bide.Webhook[decision]) error {
			_, err := hook.Receive(ctx, bide.Timeout(time.Hour))
			if err := timedOut(err); err != nil {
				return err
			}
			if err := bide.Sleep(ctx, time.Hour); err != nil {
				return err
			}
			d, err := hook.Receive(ctx, bide.Timeout(time.Hour))
			if err == nil && !d.Approved {
				err = errors.New("rejected")
			}
			return err
		})
		s.call("GET", page, "").want(200, "<form")
		time.Sleep(90 * time.Minute)
		s.call("GET", page, "").want(410)
		time.Sleep(time.Hour)
		s.call("GET", page, "").want(200, "<form")
		s.decide(page, "decision=approve").want(200, "is kept: approved")
		time.Sleep(time.Second)
		s.decide(page, "decision=reject").want(409, "decided: approved.")
	})
}

// The time of a wait is over when it is over, whether a worker has seen it or not.
func TestApprovalWithoutWorker(t *testing.T) {
	inBubble(t, func(s *site) {
		var link string
		stop := s.work(approving(&link))
		s.call("POST", "/v1/runs", `{"workflow":"approving","id":"r","input":"?"}`, "Prefer: wait=1").want(202)
		stop()
		s.call("GET", pageOf(link), "").want(200)
		time.Sleep(25 * time.Hour)
		s.call("GET", pageOf(link), "").want(410, "Too late")
		s.decide(pageOf(link), "decision=approve").want(410, "Too late")
	})
}

// One decides. All who come after are told what was decided.
func TestApprovalDecided(t *testing.T) {
	inBubble(t, func(s *site) {
		page := s.desk("once", func(ctx bide.Context, hook *bide.Webhook[decision]) error {
			if err := bide.Sleep(ctx, time.Hour); err != nil {
				return err
			}
			d, err := hook.Receive(ctx, bide.Timeout(time.Hour))
			if err == nil && (!d.Approved || d.By != "ann <b>") {
				err = fmt.Errorf("%+v", d)
			}
			return err
		})
		s.decide(page, "decision=approve&by=ann+%3Cb%3E").want(200, "is kept: approved")
		s.decide(page, "decision=reject&by=bob").want(409, "before yours") // the run has not looked yet
		s.decide(page, "decision=approve&by=ann+%3Cb%3E").want(409, "before yours")
		time.Sleep(time.Hour)
		s.decide(page, "decision=reject&by=bob").want(409, "decided: approved, by ann &lt;b&gt;.")
		a := s.call("GET", page, "").want(200, "decided: approved, by ann &lt;b&gt;.")
		if strings.Contains(string(a.body), "<form") {
			t.Error("what is decided is asked again")
		}
		s.call("GET", "/v1/runs/once", "").want(200, `"waiting"`)
		s.call("POST", "/v1/runs/once/terminate", "").want(200)
		s.decide(page, "decision=reject&by=bob").want(410, "Too late", "decided: approved")
	})
}

// A link that asks a second question takes a second decision.
func TestApprovalAgain(t *testing.T) {
	inBubble(t, func(s *site) {
		page := s.desk("again", func(ctx bide.Context, hook *bide.Webhook[decision]) error {
			for want := range 2 {
				if d, err := hook.Receive(ctx); err != nil || d.Approved != (want == 1) {
					return fmt.Errorf("%d: %+v %w", want, d, err)
				}
			}
			return nil
		})
		s.decide(page, "decision=reject").want(200, "is kept: rejected")
		time.Sleep(time.Second)
		s.call("GET", page, "").want(200, "<form")
		s.decide(page, "decision=approve").want(200, "is kept: approved")
		time.Sleep(time.Second)
		s.decide(page, "decision=reject").want(409, "decided: approved.")
	})
}

// Of several links with one name each is told its own, side by side and one after
// another.
func TestApprovalNames(t *testing.T) {
	inBubble(t, func(s *site) {
		var mu sync.Mutex
		links := map[int]string{}
		page := func(n int) string {
			mu.Lock()
			defer mu.Unlock()
			return pageOf(links[n])
		}
		ask := func(ctx bide.Context, n int, most time.Duration) error {
			hook, err := bide.NewWebhook[decision](ctx, "verdict")
			if err != nil {
				return err
			}
			mu.Lock()
			links[n] = hook.URL()
			mu.Unlock()
			if _, err = hook.Receive(ctx, bide.Timeout(most)); err != nil {
				return timedOut(err)
			}
			return nil
		}
		s.work(bide.Define("several", func(ctx bide.Context, _ any) (any, error) {
			if err := errors.Join(ask(ctx, 0, time.Minute), ask(ctx, 1, time.Hour)); err != nil {
				return nil, err
			}
			branch := func(n int, most time.Duration) bide.NamedBranch[any] {
				return bide.Branch(fmt.Sprint(n), func(ctx bide.Context) (any, error) { return nil, ask(ctx, n, most) })
			}
			if _, err := bide.All(ctx, branch(2, time.Minute), branch(3, time.Hour)); err != nil {
				return nil, err
			}
			return nil, bide.Sleep(ctx, time.Hour)
		}))
		s.call("POST", "/v1/runs", `{"workflow":"several","id":"r"}`, "Prefer: wait=1").want(202)
		time.Sleep(2 * time.Minute)
		s.call("GET", page(0), "").want(410)
		s.decide(page(1), "decision=reject").want(200)
		time.Sleep(2 * time.Minute)
		s.call("GET", page(0), "").want(410)
		s.call("GET", page(1), "").want(200, "decided: rejected")
		s.decide(page(2), "decision=approve").want(410)
		s.decide(page(3), "decision=approve").want(200)
		time.Sleep(time.Second)
		s.call("GET", page(1), "").want(200, "decided: rejected")
		s.call("GET", page(2), "").want(410)
		s.call("GET", page(3), "").want(200, "decided: approved")
	})
}

// A run that is to end, or that a poll has let go on, asks nobody.
func TestApprovalOver(t *testing.T) {
	inBubble(t, func(s *site) {
		n := 0
		page := s.desk("polled", func(ctx bide.Context, hook *bide.Webhook[decision]) error {
			_, err := bide.Poll(ctx, "job", func(context.Context) (int, error) { n++; return n, nil }, func(n int) bool { return n > 1 },
				bide.Every(time.Minute), bide.Timeout(time.Hour), bide.WakeOn(hook))
			return err
		})
		s.call("GET", page, "").want(200, "<form")
		time.Sleep(2 * time.Minute)
		s.call("GET", page, "").want(410, "Too late")
		s.decide(page, "decision=approve").want(410, "Too late")

		page = s.desk("tidy", func(ctx bide.Context, hook *bide.Webhook[decision]) error {
			_, err := hook.Receive(ctx)
			return errors.Join(err, bide.Sleep(bide.WithoutCancel(ctx), time.Hour))
		})
		s.call("POST", "/v1/runs/tidy/cancel", "").want(202)
		time.Sleep(time.Second)
		s.decide(page, "decision=approve").want(410, "Too late")
	})
}
