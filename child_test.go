package bide_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bide-dev/bide"
)

// family runs fn with a worker of several workflows.
func family(t *testing.T, fn func(s *stage), workflows ...bide.Definition) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		store := inMemory().open(t)
		worker := bide.NewWorker(store, bide.WorkerConfig{Logger: slog.New(slog.DiscardHandler)})
		worker.Register(workflows...)
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- worker.Run(ctx) }()
		fn(&stage{T: t, store: store, client: bide.NewClient(store, workflows...)})
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
}

var errSick = errors.New("sick")

func init() { bide.RegisterError(errSick) }

// A child's result and its error come back as what they were; its id tells where
// it was started; a stranger's id is a conflict where the child is waited for.
func TestChild(t *testing.T) {
	grown := bide.Define("grown", func(ctx bide.Context, name string) (string, error) {
		if name == "ill" {
			return "", errSick
		}
		return "grown " + name, bide.Sleep(ctx, time.Minute)
	})
	parent := bide.Define("parent", func(ctx bide.Context, _ int) (string, error) {
		a, err := bide.StartChild(ctx, grown, "a")
		if err != nil {
			return "", err
		}
		b, err := bide.StartChild(ctx, grown, "b", bide.ID("named"), bide.Labels{"of": "parent"})
		if err != nil {
			return "", err
		}
		one, err := a.Result(ctx)
		if err != nil {
			return "", err
		}
		two, err := b.Result(ctx)
		if err != nil {
			return "", err
		}
		if _, err = bide.Child(ctx, grown, "ill"); !errors.Is(err, errSick) || bide.Code(err) != "run_failed" {
			return "", err
		}
		if _, err = bide.Child(ctx, grown, "x", bide.ID("stranger")); bide.Code(err) != "conflict" {
			return "", err
		}
		if _, err = bide.StartChild(ctx, grown, "x", bide.Replace); bide.Code(err) != "invalid" {
			return "", err
		}
		return one + ", " + two + " (" + a.ID() + " " + b.ID() + ")", nil
	})
	family(t, func(s *stage) {
		if _, err := grown.Start(s.Context(), s.client, "other", bide.ID("stranger")); err != nil {
			t.Fatal(err)
		}
		run, err := parent.Start(s.Context(), s.client, 0, bide.ID("p"))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := run.Result(s.Context()); got != "grown a, grown b (p:1 named)" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
		if kids, err := s.client.Runs(s.Context(), bide.Query{Parent: "p"}); err != nil || len(kids) != 3 {
			t.Errorf("%d children, %v", len(kids), err)
		}
	}, grown, parent)
}

// When a parent ends, however it does, its children are canceled and may clean
// up; detached ones go on.
func TestParentEnds(t *testing.T) {
	cleaned := 0
	sleeper := bide.Define("sleeper", func(ctx bide.Context, _ int) (int, error) {
		err := bide.Sleep(ctx, time.Hour)
		if errors.Is(err, bide.ErrCanceled) {
			_, cerr := bide.Step(bide.WithoutCancel(ctx), "clean", func(context.Context) (int, error) { cleaned++; return 0, nil })
			return 0, errors.Join(err, cerr)
		}
		return 1, err
	})
	parent := bide.Define("parent", func(ctx bide.Context, how string) (int, error) {
		if _, err := bide.StartChild(ctx, sleeper, 0, bide.ID(how+"-kid")); err != nil {
			return 0, err
		}
		if _, err := bide.StartChild(ctx, sleeper, 0, bide.ID(how+"-free"), bide.Detached{}); err != nil {
			return 0, err
		}
		if err := bide.Sleep(ctx, time.Minute); err != nil || how == "returns" {
			return 0, err
		}
		if how == "fails" {
			return 0, errors.New("no")
		}
		return 0, bide.Sleep(ctx, 100*time.Hour)
	})
	family(t, func(s *stage) {
		for _, how := range []string{"returns", "fails", "canceled", "terminated", "late"} {
			opts := []bide.StartOption{bide.ID(how)}
			if how == "late" {
				opts = append(opts, bide.Timeout(90*time.Second))
			}
			run, err := parent.Start(s.Context(), s.client, how, opts...)
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * time.Minute)
			switch how {
			case "canceled":
				err = s.client.Cancel(s.Context(), how, "enough")
			case "terminated":
				err = s.client.Terminate(s.Context(), how, "enough")
			}
			if err != nil {
				t.Error(err)
			}
			_, _ = run.Result(s.Context())
			time.Sleep(time.Second)
			kid, _ := s.client.Get(s.Context(), how+"-kid")
			free, _ := s.client.Get(s.Context(), how+"-free")
			if kid.State != bide.Canceled || free.State != bide.Waiting {
				t.Errorf("%s: the child is %s, the detached one %s", how, kid.State, free.State)
			}
		}
		if cleaned != 5 {
			t.Errorf("%d children cleaned up", cleaned)
		}
	}, sleeper, parent)
}

// A race's loser takes its children with it.
func TestLoserCancelsItsChildren(t *testing.T) {
	sleeper := bide.Define("sleeper", func(ctx bide.Context, _ int) (int, error) { return 1, bide.Sleep(ctx, time.Hour) })
	parent := bide.Define("parent", func(ctx bide.Context, _ int) (string, error) {
		winner, _, err := bide.Race(ctx,
			bide.Branch("child", func(ctx bide.Context) (int, error) { return bide.Child(ctx, sleeper, 0, bide.ID("kid")) }),
			bide.Branch("clock", func(ctx bide.Context) (int, error) { return 0, bide.Sleep(ctx, time.Minute) }))
		if err != nil {
			return "", err
		}
		return winner, bide.Sleep(ctx, time.Minute)
	})
	family(t, func(s *stage) {
		run, err := parent.Start(s.Context(), s.client, 0)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(61 * time.Second)
		if kid, err := s.client.Get(s.Context(), "kid"); kid.State != bide.Canceled || err != nil {
			t.Errorf("the child is %s, %v", kid.State, err)
		}
		if got, err := run.Result(s.Context()); got != "clock" || err != nil {
			t.Errorf("%s, %v", got, err)
		}
	}, sleeper, parent)
}
