package bide_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/wait"
)

// ctlEcho returns its input.
var ctlEcho = bide.Define("ctl-echo", func(_ bide.Context, in string) (string, error) { return in, nil })

// ctlReceive returns the signal "go".
var ctlReceive = bide.Define("ctl-receive", func(ctx bide.Context, _ none) (string, error) {
	return bide.Receive[string](ctx, "go")
})

// ctlSleep sleeps for as long as its input says.
var ctlSleep = bide.Define("ctl-sleep", func(ctx bide.Context, d time.Duration) (string, error) {
	return "slept", bide.Sleep(ctx, d)
})

// ctlStep is a step without retries: at most once by count of calls, not by commit.
func ctlStep(ctx bide.Context, name string, fn func(context.Context) (string, error)) (string, error) {
	return bide.Step(ctx, name, func(ctx context.Context) (string, error) {
		s, err := fn(ctx)
		return s, bide.Permanent(err)
	})
}

// ctlCalls counts calls by name.
type ctlCalls struct{ n [8]atomic.Int32 }

func (c *ctlCalls) ok(i int) func(context.Context) (string, error) {
	return func(context.Context) (string, error) {
		c.n[i].Add(1)
		return "ok", nil
	}
}

// failFirst fails its first k calls.
func (c *ctlCalls) failFirst(i, k int) func(context.Context) (string, error) {
	return func(context.Context) (string, error) {
		if int(c.n[i].Add(1)) <= k {
			return "", errors.New("not yet")
		}
		return "ok", nil
	}
}

func (c *ctlCalls) want(e *env, want ...int32) {
	e.Helper()
	got := make([]int32, len(want))
	for i := range got {
		got[i] = c.n[i].Load()
	}
	if !slices.Equal(got, want) {
		e.Errorf("steps were called %v times, want %v", got, want)
	}
}

// ctlIs ends the test if err is not target.
func ctlIs(e *env, err, target error) {
	e.Helper()
	if !errors.Is(err, target) {
		e.Errorf("error is %v, want %v", err, target)
	}
}

// ctlField wants an InvalidError that names the field.
func ctlField(e *env, err error, field string) {
	e.Helper()
	if got := wantErr[*bide.InvalidError](e, err); got.Field != field || got.Reason == "" {
		e.Errorf("%v: the field is %q, want %q", err, got.Field, field)
	}
}

// TestControlStartOptions protects the options of a start: each does what it says.
func TestControlStartOptions(t *testing.T) {
	inBubble(t, func(e *env) {
		began := time.Now()
		h := start(e, ctlReceive, none{}, bide.ID("it"), bide.Queue("slow"), bide.Delay(time.Hour), bide.Timeout(2*time.Hour),
			bide.Labels{"team": "a"}, bide.FirstSignal("go", "first"))
		r := e.get(h.ID())
		switch {
		case h.ID() != "it" || !h.New() || r.ID != "it":
			t.Errorf("the run is %q, new: %v", r.ID, h.New())
		case r.Queue != "slow" || r.Workflow != "ctl-receive" || r.Labels["team"] != "a" || len(r.Labels) != 1:
			t.Errorf("the run is %s", jsonOf(t, r))
		case !r.Deadline.Equal(began.Add(2 * time.Hour)):
			t.Errorf("the deadline is %v, want two hours after %v", r.Deadline, began)
		}
		w := e.waitOf("it", bide.KindSleep)
		if r.State != bide.Waiting || w.Name != "delay" || !w.Until.Equal(began.Add(time.Hour)) {
			t.Errorf("a delayed run is %v and waits for %+v", r.State, w)
		}
		cfg := e.config()
		cfg.Queues = []string{"slow"}
		e.workAs(cfg, ctlReceive)
		out, err := result(e, h)
		if took := time.Since(began); err != nil || out != "first" || took < time.Hour || took > time.Hour+time.Second {
			t.Errorf("got %q, %v after %v", out, err, took)
		}
		made := start(e, ctlEcho, "x")
		if !strings.HasPrefix(made.ID(), "run_") {
			t.Errorf("the store made the id %q", made.ID())
		}
	})
}

// TestControlStartTwice protects the conflict policies of an id that is taken.
func TestControlStartTwice(t *testing.T) {
	inBubble(t, func(e *env) {
		start(e, ctlEcho, "a", bide.ID("it"))
		again := start(e, ctlEcho, "a", bide.ID("it"), bide.FirstSignal("go", 1))
		if again.New() || again.ID() != "it" {
			t.Errorf("a second start gave %q, new: %v", again.ID(), again.New())
		}
		for _, opts := range [][]bide.StartOption{{bide.ID("it"), bide.Fail}, {bide.ID("it"), bide.Existing}} {
			in := "a"
			if opts[1] == bide.Existing {
				in = "b"
			}
			_, err := ctlEcho.Start(e.Context(), e.client, in, opts...)
			if c := wantErr[*bide.ConflictError](e, err); c.ID != "it" {
				t.Errorf("the conflict is about %q", c.ID)
			}
		}
		_, err := ctlReceive.Start(e.Context(), e.client, none{}, bide.ID("it"))
		wantErr[*bide.ConflictError](e, err)

		next := start(e, ctlEcho, "b", bide.ID("it"), bide.Replace)
		if !next.New() || next.ID() != "it" {
			t.Errorf("a replacing start gave %q, new: %v", next.ID(), next.New())
		}
		runs, err := e.client.Runs(e.Context(), bide.Query{States: []bide.State{bide.Terminated}})
		e.ok(err)
		if len(runs) != 1 || runs[0].ID == "it" {
			t.Fatalf("terminated are %s, want the replaced run under another id", jsonOf(t, runs))
		}
		if old := e.get(runs[0].ID); string(old.Input) != `"a"` || old.Error == nil {
			t.Errorf("the replaced run is %s", jsonOf(t, old))
		}
		e.work(ctlEcho)
		if out, err := result(e, next); out != "b" || err != nil {
			t.Errorf("got %q, %v", out, err)
		}
		// An ended run of the same input is handed back; so is its result.
		if h := start(e, ctlEcho, "b", bide.ID("it")); h.New() {
			t.Error("an ended run was begun again")
		}
	})
}

// TestControlStartRefused protects the store from bad options: each is refused
// with the field's name, before anything is kept.
func TestControlStartRefused(t *testing.T) {
	inBubble(t, func(e *env) {
		for _, c := range []struct {
			field string
			opt   bide.StartOption
		}{
			{"id", bide.ID("")},
			{"id", bide.ID("run_abc")},
			{"id", bide.ID("with space")},
			{"id", bide.ID("tab\there")},
			{"id", bide.ID("line\n")},
			{"id", bide.ID("nul\x00")},
			{"id", bide.ID("del\x7f")},
			{"id", bide.ID("bad\xff")},
			{"id", bide.ID(strings.Repeat("x", 256))},
			{"queue", bide.Queue("")},
			{"delay", bide.Delay(-1)},
			{"timeout", bide.Timeout(0)},
			{"timeout", bide.Timeout(-time.Second)},
			{"signal name", bide.FirstSignal("", 1)},
			{"Detached", bide.Detached{}},
		} {
			_, err := ctlEcho.Start(e.Context(), e.client, "x", c.opt)
			ctlField(e, err, c.field)
		}
		_, err := ctlEcho.Start(e.Context(), e.client, "x", bide.FirstSignal("go", make(chan int)))
		wantErr[*bide.CodecError](e, err)
		runs, err := e.client.Runs(e.Context(), bide.Query{})
		if len(runs) != 0 || err != nil {
			t.Errorf("refused starts left %d runs (%v)", len(runs), err)
		}
		start(e, ctlEcho, "x", bide.ID(strings.Repeat("x", 255)))
		start(e, ctlEcho, "x", bide.ID("päth/with:all~sorts"), bide.Delay(0))
	})
}

// TestControlStartByName protects starts by name: unknown names, input that is no
// JSON or of another type, too large input, and what Validate refuses.
func TestControlStartByName(t *testing.T) {
	errTaken := errors.New("that name is taken")
	picky := bide.Define("ctl-picky", func(_ bide.Context, in string) (string, error) { return in, nil },
		bide.Validate(func(in string) error {
			switch in {
			case "taken":
				return errTaken
			case "odd":
				return &bide.InvalidError{Field: "name", Reason: "is odd"}
			}
			return nil
		}), bide.Queue("picky"))
	inBubble(t, func(e *env) {
		c := bide.NewClient(e.store, picky, ctlEcho)
		begin := func(name, input string) error {
			_, _, err := c.Start(e.Context(), name, json.RawMessage(input))
			return err
		}
		unknown := wantErr[*bide.UnknownWorkflowError](e, begin("nobody", `1`))
		if unknown.Name != "nobody" || !slices.Equal(unknown.Known, []string{"ctl-echo", "ctl-picky"}) {
			t.Errorf("got %+v", unknown)
		}
		for _, input := range []string{`{`, ``, `"a" "b"`} {
			if codec := wantErr[*bide.CodecError](e, begin("ctl-echo", input)); codec.Field != "input" {
				t.Errorf("input %q: the field is %q", input, codec.Field)
			}
		}
		for _, name := range []string{"ctl-echo", "ctl-picky"} {
			if codec := wantErr[*bide.CodecError](e, begin(name, `7`)); codec.Field != "input" {
				t.Errorf("a number for a string: the field is %q", codec.Field)
			}
		}
		large := wantErr[*bide.PayloadTooLargeError](e, begin("ctl-echo", `"`+strings.Repeat("x", bide.MaxPayload)+`"`))
		if large.Field != "input" || large.Limit != bide.MaxPayload || large.Size != bide.MaxPayload+2 {
			t.Errorf("got %+v", large)
		}
		_, err := ctlEcho.Start(e.Context(), e.client, strings.Repeat("x", bide.MaxPayload))
		wantErr[*bide.PayloadTooLargeError](e, err)

		err = begin("ctl-picky", `"taken"`)
		ctlIs(e, err, errTaken)
		ctlField(e, err, "input")
		ctlField(e, begin("ctl-picky", `"odd"`), "name")
		_, err = picky.Start(e.Context(), e.client, "taken")
		ctlIs(e, err, errTaken)

		id, isNew, err := c.Start(e.Context(), "ctl-picky", json.RawMessage(`"fine"`), bide.ID("it"))
		if id != "it" || !isNew || err != nil {
			t.Errorf("got %q, %v, %v", id, isNew, err)
		}
		if r := e.get("it"); r.Queue != "picky" || r.State != bide.Queued {
			t.Errorf("the run is %s", jsonOf(t, r))
		}
		_, isNew, err = c.Start(e.Context(), "ctl-picky", json.RawMessage(`"fine"`), bide.ID("it"))
		if isNew || err != nil {
			t.Errorf("the same start again: new %v, %v", isNew, err)
		}
	})
}

// TestControlBadResult protects runs whose result cannot be kept: they fail and say why.
func TestControlBadResult(t *testing.T) {
	odd := bide.Define("ctl-odd", func(_ bide.Context, n int) (any, error) {
		if n == 0 {
			return make(chan int), nil
		}
		return strings.Repeat("x", n), nil
	})
	inBubble(t, func(e *env) {
		e.work(odd)
		_, err := result(e, start(e, odd, 0))
		if codec := wantErr[*bide.CodecError](e, err); codec.Field != "result of workflow ctl-odd" {
			t.Errorf("the field is %q", codec.Field)
		}
		_, err = result(e, start(e, odd, bide.MaxPayload))
		if large := wantErr[*bide.PayloadTooLargeError](e, err); large.Size != bide.MaxPayload+2 {
			t.Errorf("got %+v", large)
		}
		if run := wantErr[*bide.RunError](e, err); run.State != bide.Failed {
			t.Errorf("got %+v", run)
		}
		if out, err := result(e, start(e, odd, bide.MaxPayload-2)); err != nil || len(out.(string)) != bide.MaxPayload-2 {
			t.Errorf("the largest result: %v", err)
		}
	})
}

// TestControlSignal protects signals: kept from before the wait, in order, once
// by key, and refused where nobody can receive them.
func TestControlSignal(t *testing.T) {
	three := bide.Define("ctl-three", func(ctx bide.Context, _ none) ([]string, error) {
		var got []string
		for range 3 {
			s, err := bide.Receive[string](ctx, "go")
			if err != nil {
				return nil, err
			}
			got = append(got, s)
		}
		return got, nil
	})
	inBubble(t, func(e *env) {
		h := start(e, three, none{}, bide.ID("it"), bide.FirstSignal("go", "a"))
		send := func(name string, v any, opts ...bide.SignalOption) error {
			return e.client.Signal(e.Context(), "it", name, v, opts...)
		}
		e.ok(send("go", "b", bide.Key("k")))
		e.ok(send("go", "b again", bide.Key("k")))
		e.ok(send("other", "x"))
		ctlField(e, send("", "x"), "signal name")
		wantErr[*bide.CodecError](e, send("go", make(chan int)))
		wantErr[*bide.PayloadTooLargeError](e, send("go", strings.Repeat("x", bide.MaxPayload)))
		ctlIs(e, e.client.Signal(e.Context(), "nobody", "go", 1), bide.ErrNotFound)
		e.work(three)
		synctest.Wait()
		if w := e.waitOf("it", bide.KindReceive); w.Name != "go" || w.Path != "3" {
			t.Errorf("the run waits for %+v", w)
		}
		e.ok(send("go", "b after it was received", bide.Key("k")))
		synctest.Wait()
		e.wantState("it", bide.Waiting)
		e.ok(send("go", "c"))
		if out, err := result(e, h); err != nil || !slices.Equal(out, []string{"a", "b", "c"}) {
			t.Errorf("got %q, %v", out, err)
		}
		ctlIs(e, send("go", "late"), bide.ErrRunEnded)
	})
}

// TestControlCancelBlocked protects a canceled run: whatever verb it blocks in
// returns ErrCanceled at once, and so does each verb that follows.
func TestControlCancelBlocked(t *testing.T) {
	never := func(int) bool { return false }
	zero := func(context.Context) (int, error) { return 0, nil }
	verbs := map[string]func(bide.Context) error{
		"sleep": func(ctx bide.Context) error { return bide.Sleep(ctx, 48*time.Hour) },
		"until": func(ctx bide.Context) error { return bide.SleepUntil(ctx, bide.Now(ctx).Add(5*time.Second)) },
		"signal": func(ctx bide.Context) error {
			_, err := bide.Receive[int](ctx, "never")
			return err
		},
		"poll": func(ctx bide.Context) error {
			_, err := bide.Poll(ctx, "p", zero, never, bide.Every(time.Hour), bide.NoTimeout{})
			return err
		},
		"child": func(ctx bide.Context) error {
			_, err := bide.Child(ctx, ctlReceive, none{})
			return err
		},
		"retry": func(ctx bide.Context) error {
			_, err := bide.Step(ctx, "s", func(context.Context) (int, error) { return 0, errors.New("no") },
				bide.RetryPolicy{InitialInterval: time.Hour, NoJitter: true})
			return err
		},
		"race": func(ctx bide.Context) error {
			_, _, err := bide.Race(ctx, bide.Branch("a", func(ctx bide.Context) (int, error) { return 0, bide.Sleep(ctx, time.Hour) }))
			return err
		},
		"all": func(ctx bide.Context) error {
			part := func(ctx bide.Context) (int, error) { return 0, bide.Sleep(ctx, time.Hour) }
			_, err := bide.All(ctx, bide.Branch("a", part), bide.Branch("b", part))
			return err
		},
		"phase": func(ctx bide.Context) error {
			_, err := bide.Phase(ctx, "p", func(ctx bide.Context) (int, error) { return 0, bide.Sleep(ctx, time.Hour) })
			return err
		},
	}
	inBubble(t, func(e *env) {
		var cleaned atomic.Int32
		w := bide.Define("ctl-blocked", func(ctx bide.Context, verb string) (string, error) {
			err := verbs[verb](ctx)
			if !errors.Is(err, bide.ErrCanceled) {
				t.Errorf("%s returned %v, want ErrCanceled", verb, err)
			}
			for _, what := range slices.Sorted(maps.Keys(verbs)) { // in the same order on replay
				if what == "race" || what == "all" || what == "phase" {
					continue // they see it in their parts
				}
				if err := verbs[what](ctx); !errors.Is(err, bide.ErrCanceled) {
					t.Errorf("%s after the cancel returned %v, want ErrCanceled", what, err)
				}
			}
			clean := bide.WithoutCancel(ctx)
			if err := bide.Sleep(clean, time.Hour); err != nil { // long enough to park
				return "", err
			}
			if _, err := bide.Step(clean, "clean", func(context.Context) (int, error) { cleaned.Add(1); return 0, nil }); err != nil {
				return "", err
			}
			return "", err
		})
		e.work(w, ctlReceive)
		for verb := range verbs {
			cleaned.Store(0)
			h := start(e, w, verb, bide.ID(verb))
			time.Sleep(time.Second)
			began := time.Now()
			e.ok(e.client.Cancel(e.Context(), verb, "enough"))
			e.ok(e.client.Cancel(e.Context(), verb, "more than enough"))
			synctest.Wait()
			e.wantState(verb, bide.Canceling)
			_, err := result(e, h)
			ctlIs(e, err, bide.ErrCanceled)
			if run := wantErr[*bide.RunError](e, err); run.State != bide.Canceled || bide.Code(err) != "run_canceled" {
				t.Errorf("%s: got %+v, code %q", verb, run, bide.Code(err))
			}
			if took := time.Since(began); took < time.Hour || took > time.Hour+10*time.Second {
				t.Errorf("%s: the run ended %v after its cancel, want an hour of clean-up", verb, took)
			}
			if n := cleaned.Load(); n != 1 {
				t.Errorf("%s: cleaned up %d times", verb, n)
			}
			e.ok(e.client.Cancel(e.Context(), verb, "it is over"))
		}
		ctlIs(e, e.client.Cancel(e.Context(), "nobody", ""), bide.ErrNotFound)
		if r := e.get("child:1"); r.State != bide.Canceled && r.State != bide.Canceling {
			t.Errorf("the child of a canceled run is %v", r.State)
		}
	})
}

// TestControlCancelStep protects a step in flight: its context is canceled, and
// one that ignores that is given up after 10 seconds.
func TestControlCancelStep(t *testing.T) {
	for _, limit := range []int{0, 1} {
		inBubble(t, func(e *env) {
			var ended atomic.Int64
			began := time.Now()
			w := bide.Define("ctl-flight", func(ctx bide.Context, deaf bool) (string, error) {
				return bide.Step(ctx, "work", func(ctx context.Context) (string, error) {
					if deaf {
						time.Sleep(time.Minute)
						return "too late", nil
					}
					<-ctx.Done()
					ended.Store(int64(time.Since(began)))
					return "", ctx.Err()
				}, bide.RetryPolicy{MaximumAttempts: limit})
			})
			e.work(w)
			h, deaf := start(e, w, false), start(e, w, true)
			time.Sleep(time.Second)
			e.ok(e.client.Cancel(e.Context(), h.ID(), ""))
			e.ok(e.client.Cancel(e.Context(), deaf.ID(), ""))
			_, err := result(e, h)
			ctlIs(e, err, bide.ErrCanceled)
			if d := time.Duration(ended.Load()); d != time.Second {
				t.Errorf("the step's context was canceled at %v", d)
			}
			if r := e.get(h.ID()); r.State != bide.Canceled || r.EndedAt.Sub(began) > 2*time.Second {
				t.Errorf("limit %d: the run is %v at %v", limit, r.State, r.EndedAt.Sub(began))
			}
			_, err = result(e, deaf)
			ctlIs(e, err, bide.ErrCanceled)
			if r := e.get(deaf.ID()); r.State != bide.Canceled || r.EndedAt.Sub(began) < 11*time.Second || r.EndedAt.Sub(began) > 12*time.Second {
				t.Errorf("limit %d: the deaf run is %v at %v, want it canceled at 11 s", limit, r.State, r.EndedAt.Sub(began))
			}
			time.Sleep(2 * time.Minute) // the late result changes nothing
			for _, r := range e.history(deaf.ID()) {
				if string(r.Data) == `"too late"` {
					t.Errorf("limit %d: a result came after the end: %s", limit, jsonOf(t, r))
				}
			}
		})
	}
}

// TestControlCancelFinished protects a result that is there: a step in flight
// that succeeds in spite of the cancel keeps its result.
func TestControlCancelFinished(t *testing.T) {
	inBubble(t, func(e *env) {
		w := bide.Define("ctl-stubborn", func(ctx bide.Context, _ none) (string, error) {
			return ctlStep(ctx, "work", func(context.Context) (string, error) {
				time.Sleep(3 * time.Second)
				return "done", nil
			})
		})
		e.work(w)
		h := start(e, w, none{})
		time.Sleep(time.Second)
		e.ok(e.client.Cancel(e.Context(), h.ID(), ""))
		if out, err := result(e, h); out != "done" || err != nil {
			t.Errorf("got %q, %v", out, err)
		}
		e.wantState(h.ID(), bide.Succeeded)
		e.wantScript(h.ID(), "1 step work")
	})
}

// TestControlCancelQueued protects a run that nobody has taken: its cancel is
// kept, and the first turn sees it before any work.
func TestControlCancelQueued(t *testing.T) {
	inBubble(t, func(e *env) {
		var c ctlCalls
		w := bide.Define("ctl-queued", func(ctx bide.Context, _ none) (string, error) { return ctlStep(ctx, "work", c.ok(0)) })
		h, later := start(e, w, none{}), start(e, w, none{}, bide.Delay(24*time.Hour))
		for _, id := range []string{h.ID(), later.ID()} {
			e.ok(e.client.Cancel(e.Context(), id, "changed my mind"))
			e.ok(e.client.Cancel(e.Context(), id, "changed my mind"))
			e.wantState(id, bide.Canceling)
		}
		began := time.Now()
		e.work(w)
		for _, h := range []*bide.Handle[string]{h, later} {
			_, err := result(e, h)
			ctlIs(e, err, bide.ErrCanceled)
		}
		c.want(e, 0)
		if took := time.Since(began); took > time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

// TestControlTerminate protects terminate: the run ends at once in any state,
// without clean-up, and a second time says that it had ended.
func TestControlTerminate(t *testing.T) {
	inBubble(t, func(e *env) {
		var c ctlCalls
		var canceled atomic.Bool
		busy := bide.Define("ctl-busy", func(ctx bide.Context, _ none) (string, error) {
			_, err := bide.Step(ctx, "work", func(ctx context.Context) (string, error) {
				<-ctx.Done()
				canceled.Store(true)
				return "", ctx.Err()
			})
			_, _ = ctlStep(bide.WithoutCancel(ctx), "clean", c.ok(0))
			return "", err
		})
		queued := start(e, ctlEcho, "x")
		e.work(busy, ctlSleep, ctlReceive)
		running, asleep, receiving := start(e, busy, none{}), start(e, ctlSleep, 24*time.Hour), start(e, ctlReceive, none{})
		warm := start(e, ctlSleep, 5*time.Second)
		time.Sleep(time.Second)
		e.wantState(running.ID(), bide.Running)
		for _, id := range []string{queued.ID(), running.ID(), asleep.ID(), receiving.ID(), warm.ID()} {
			e.ok(e.client.Terminate(e.Context(), id, "enough"))
			r := e.get(id)
			if r.State != bide.Terminated || !r.EndedAt.Equal(time.Now()) || r.Error == nil || r.Error.Message != "enough" || len(r.Waiting) != 0 {
				t.Errorf("a terminated run is %s", jsonOf(t, r))
			}
			ctlIs(e, e.client.Terminate(e.Context(), id, ""), bide.ErrRunEnded)
		}
		_, err := result(e, running)
		ctlIs(e, err, bide.ErrTerminated)
		if errors.Is(err, bide.ErrCanceled) || bide.Code(err) != "run_terminated" || !strings.Contains(err.Error(), "enough") {
			t.Errorf("the error is %v, code %q", err, bide.Code(err))
		}
		time.Sleep(time.Minute)
		if !canceled.Load() {
			t.Error("the step in flight was not told")
		}
		c.want(e, 0)
		e.wantState(running.ID(), bide.Terminated)
		ctlIs(e, e.client.Terminate(e.Context(), "nobody", ""), bide.ErrNotFound)
	})
}

// TestControlPause protects a pause in each state: nothing new begins until the
// run is resumed, and what was there is not lost.
func TestControlPause(t *testing.T) {
	t.Run("queued", func(t *testing.T) {
		inBubble(t, func(e *env) {
			h := start(e, ctlEcho, "x")
			e.ok(e.client.Pause(e.Context(), h.ID()))
			e.ok(e.client.Pause(e.Context(), h.ID())) // twice is the same
			e.work(ctlEcho)
			time.Sleep(time.Hour)
			e.wantState(h.ID(), bide.Paused)
			e.waitOf(h.ID(), bide.KindPause)
			e.ok(e.client.Resume(e.Context(), h.ID()))
			if out, err := result(e, h); out != "x" || err != nil {
				t.Errorf("got %q, %v", out, err)
			}
			ctlIs(e, e.client.Pause(e.Context(), h.ID()), bide.ErrRunEnded)
			ctlIs(e, e.client.Resume(e.Context(), h.ID()), bide.ErrRunEnded)
		})
	})
	t.Run("running", func(t *testing.T) {
		inBubble(t, func(e *env) {
			var c ctlCalls
			w := bide.Define("ctl-two", func(ctx bide.Context, _ none) (string, error) {
				_, err := bide.Step(ctx, "slow", func(ctx context.Context) (string, error) {
					time.Sleep(10 * time.Second)
					return c.ok(0)(ctx)
				})
				if err != nil {
					return "", err
				}
				return ctlStep(ctx, "next", c.ok(1))
			})
			e.work(w)
			h := start(e, w, none{})
			time.Sleep(time.Second)
			ctlField(e, e.client.Resume(e.Context(), h.ID()), "run")
			e.ok(e.client.Pause(e.Context(), h.ID()))
			e.wantState(h.ID(), bide.Paused)
			time.Sleep(time.Hour)
			c.want(e, 1, 0)
			e.wantScript(h.ID(), "1 step slow")
			e.ok(e.client.Resume(e.Context(), h.ID()))
			if out, err := result(e, h); out != "ok" || err != nil {
				t.Errorf("got %q, %v", out, err)
			}
			c.want(e, 1, 1)
		})
	})
	for what, d := range map[string]time.Duration{"warm": 8 * time.Second, "asleep": time.Hour} {
		t.Run(what, func(t *testing.T) {
			inBubble(t, func(e *env) {
				e.work(ctlSleep)
				began := time.Now()
				early, late := start(e, ctlSleep, d), start(e, ctlSleep, d)
				time.Sleep(time.Second)
				for _, h := range []*bide.Handle[string]{early, late} {
					e.ok(e.client.Pause(e.Context(), h.ID()))
				}
				time.Sleep(d / 2)
				e.wantState(early.ID(), bide.Paused)
				e.ok(e.client.Resume(e.Context(), early.ID()))
				_, err := result(e, early)
				e.ok(err)
				if took := time.Since(began); took < d || took > d+time.Second { // the deadline has not moved
					t.Errorf("resumed before its time, it slept %v, want %v", took, d)
				}
				time.Sleep(d)
				e.wantState(late.ID(), bide.Paused)
				e.ok(e.client.Resume(e.Context(), late.ID()))
				resumed := time.Now()
				_, err = result(e, late)
				e.ok(err)
				if took := time.Since(resumed); took > time.Second {
					t.Errorf("resumed after its time, it slept %v more", took)
				}
			})
		})
	}
	t.Run("signal", func(t *testing.T) {
		inBubble(t, func(e *env) {
			e.work(ctlReceive)
			h := start(e, ctlReceive, none{})
			time.Sleep(time.Second)
			e.ok(e.client.Pause(e.Context(), h.ID()))
			e.ok(e.client.Signal(e.Context(), h.ID(), "go", "kept"))
			time.Sleep(time.Hour)
			e.wantState(h.ID(), bide.Paused)
			if r := e.get(h.ID()); len(r.Waiting) != 2 || r.Waiting[0].Kind != bide.KindPause || r.Waiting[1].Kind != bide.KindReceive {
				t.Errorf("the paused run waits for %v", r.Waiting)
			}
			e.ok(e.client.Resume(e.Context(), h.ID()))
			if out, err := result(e, h); out != "kept" || err != nil {
				t.Errorf("got %q, %v", out, err)
			}
		})
	})
	t.Run("canceling", func(t *testing.T) {
		inBubble(t, func(e *env) {
			h := start(e, ctlReceive, none{})
			e.ok(e.client.Cancel(e.Context(), h.ID(), ""))
			ctlField(e, e.client.Pause(e.Context(), h.ID()), "run")
			paused := start(e, ctlReceive, none{})
			e.ok(e.client.Pause(e.Context(), paused.ID()))
			e.ok(e.client.Cancel(e.Context(), paused.ID(), ""))
			e.work(ctlReceive)
			for _, h := range []*bide.Handle[string]{h, paused} { // a cancel ends a pause
				_, err := result(e, h)
				ctlIs(e, err, bide.ErrCanceled)
			}
			ctlIs(e, e.client.Pause(e.Context(), "nobody"), bide.ErrNotFound)
			ctlIs(e, e.client.Resume(e.Context(), "nobody"), bide.ErrNotFound)
		})
	})
}

// TestControlRetry protects what a retried run has done: it goes on from the
// failed step, and no finished step runs again, wherever the failure was.
func TestControlRetry(t *testing.T) {
	type part = func(bide.Context) (string, error)
	child := func(c *ctlCalls) *bide.Workflow[none, string] {
		return bide.Define("ctl-child", func(ctx bide.Context, _ none) (string, error) {
			if s, err := ctlStep(ctx, "child's own", c.ok(3)); err != nil {
				return s, err
			}
			return ctlStep(ctx, "fails", c.failFirst(1, 1))
		})
	}
	fails := func(c *ctlCalls) part {
		return func(ctx bide.Context) (string, error) {
			if _, err := ctlStep(ctx, "before", c.ok(2)); err != nil {
				return "", err
			}
			return ctlStep(ctx, "fails", c.failFirst(1, 1))
		}
	}
	for name, c := range map[string]struct {
		middle func(ctx bide.Context, c *ctlCalls) (string, error)
		want   []int32 // calls of: first, failing, two others, last
	}{
		"step": {func(ctx bide.Context, c *ctlCalls) (string, error) { return ctlStep(ctx, "fails", c.failFirst(1, 1)) },
			[]int32{1, 2, 0, 0, 1}},
		"phase": {func(ctx bide.Context, c *ctlCalls) (string, error) { return bide.Phase(ctx, "part", fails(c)) },
			[]int32{1, 2, 1, 0, 1}},
		"phase in phase": {func(ctx bide.Context, c *ctlCalls) (string, error) {
			return bide.Phase(ctx, "outer", func(ctx bide.Context) (string, error) { return bide.Phase(ctx, "inner", fails(c)) })
		}, []int32{1, 2, 1, 0, 1}},
		"race": {func(ctx bide.Context, c *ctlCalls) (string, error) {
			_, s, err := bide.Race(ctx, bide.Branch("a", fails(c)), bide.Branch("b", func(ctx bide.Context) (string, error) {
				return "", bide.Sleep(ctx, time.Hour)
			}))
			return s, err
		}, []int32{1, 2, 1, 0, 1}},
		"all": {func(ctx bide.Context, c *ctlCalls) (string, error) {
			_, err := bide.All(ctx, bide.Branch("a", func(ctx bide.Context) (string, error) {
				if err := bide.Sleep(ctx, time.Minute); err != nil {
					return "", err
				}
				return ctlStep(ctx, "beside", c.ok(3))
			}), bide.Branch("b", fails(c)))
			return "", err
		}, []int32{1, 2, 1, 1, 1}},
		"go": {func(ctx bide.Context, c *ctlCalls) (string, error) {
			f := bide.Go(ctx, "b", fails(c))
			if _, err := ctlStep(ctx, "beside", c.ok(3)); err != nil {
				return "", err
			}
			return f.Get(ctx)
		}, []int32{1, 2, 1, 1, 1}},
		"child": {func(ctx bide.Context, c *ctlCalls) (string, error) { return bide.Child(ctx, child(c), none{}) },
			[]int32{1, 2, 0, 1, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(e *env) {
				var calls ctlCalls
				w := bide.Define("ctl-retried", func(ctx bide.Context, _ none) (string, error) {
					if _, err := ctlStep(ctx, "first", calls.ok(0)); err != nil {
						return "", err
					}
					if _, err := c.middle(ctx, &calls); err != nil {
						return "", err
					}
					return ctlStep(ctx, "last", calls.ok(4))
				})
				e.work(w, child(&calls))
				h := start(e, w, none{}, bide.ID("it"))
				_, err := result(e, h)
				if err == nil || !strings.Contains(err.Error(), "not yet") {
					t.Fatalf("got %v", err)
				}
				before := e.history("it")
				e.ok(e.client.Retry(e.Context(), "it"))
				if out, err := result(e, h); out != "ok" || err != nil {
					t.Errorf("got %q, %v; the history is\n\t%s", out, err, strings.Join(e.script("it"), "\n\t"))
				}
				calls.want(e, c.want...)
				after := e.history("it")
				if len(after) <= len(before) || after[len(before)].Kind != bide.KindRetried || after[len(before)].Error == nil {
					t.Errorf("the history does not tell of the retry:\n\t%s", strings.Join(e.script("it"), "\n\t"))
				}
				ctlField(e, e.client.Retry(e.Context(), "it"), "run")
			})
		})
	}
}

// TestControlRetryTwice protects a run that fails again: it can be retried again.
func TestControlRetryTwice(t *testing.T) {
	inBubble(t, func(e *env) {
		var c ctlCalls
		w := bide.Define("ctl-thrice", func(ctx bide.Context, _ none) (string, error) {
			if _, err := ctlStep(ctx, "first", c.ok(0)); err != nil {
				return "", err
			}
			if _, err := ctlStep(ctx, "fails", c.failFirst(1, 2)); err != nil {
				return "", err
			}
			return ctlStep(ctx, "fails too", c.failFirst(2, 1))
		})
		h := start(e, w, none{})
		ctlField(e, e.client.Retry(e.Context(), h.ID()), "run") // it has not ended
		e.work(w)
		for range 3 {
			if out, err := result(e, h); err == nil {
				t.Fatalf("got %q", out)
			}
			e.ok(e.client.Retry(e.Context(), h.ID()))
		}
		if out, err := result(e, h); out != "ok" || err != nil {
			t.Errorf("got %q, %v", out, err)
		}
		c.want(e, 1, 3, 2)
		ctlIs(e, e.client.Retry(e.Context(), "nobody"), bide.ErrNotFound)
	})
}

// TestControlRetryCanceled protects a canceled run that is sent on: it forgets
// the cancel, not its steps, whatever the cancel had cut short.
func TestControlRetryCanceled(t *testing.T) {
	flight := func(limit int) func(bide.Context, *ctlCalls) error {
		return func(ctx bide.Context, c *ctlCalls) error {
			_, err := bide.Step(ctx, "flight", func(ctx context.Context) (string, error) {
				if c.n[1].Add(1) > 1 {
					return "ok", nil
				}
				<-ctx.Done()
				return "", ctx.Err()
			}, bide.RetryPolicy{MaximumAttempts: limit})
			return err
		}
	}
	for name, middle := range map[string]func(bide.Context, *ctlCalls) error{
		"signal": func(ctx bide.Context, _ *ctlCalls) error {
			_, err := bide.Receive[string](ctx, "go")
			return err
		},
		"sleep":             func(ctx bide.Context, _ *ctlCalls) error { return bide.Sleep(ctx, time.Minute) },
		"step":              flight(0),
		"bounded step":      flight(3),
		"at most once step": flight(1),
		"deaf step": func(ctx bide.Context, c *ctlCalls) error {
			_, err := bide.Step(ctx, "deaf", func(context.Context) (string, error) {
				if c.n[1].Add(1) == 1 {
					time.Sleep(time.Minute)
				}
				return "ok", nil
			}, bide.RetryPolicy{MaximumAttempts: 1})
			return err
		},
		"all": func(ctx bide.Context, _ *ctlCalls) error {
			wait := func(ctx bide.Context) (string, error) { return "", bide.Sleep(ctx, time.Minute) }
			_, err := bide.All(ctx, bide.Branch("a", wait), bide.Branch("b", wait))
			return err
		},
		"race": func(ctx bide.Context, _ *ctlCalls) error {
			wait := func(ctx bide.Context) (string, error) { return "", bide.Sleep(ctx, time.Minute) }
			_, _, err := bide.Race(ctx, bide.Branch("a", wait), bide.Branch("b", wait))
			return err
		},
		"child": func(ctx bide.Context, _ *ctlCalls) error {
			_, err := bide.Child(ctx, ctlReceive, none{}, bide.ID("kid"))
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(e *env) {
				var c ctlCalls
				w := bide.Define("ctl-uncanceled", func(ctx bide.Context, _ none) (string, error) {
					if _, err := ctlStep(ctx, "first", c.ok(0)); err != nil {
						return "", err
					}
					if err := middle(ctx, &c); err != nil {
						return "", err
					}
					return ctlStep(ctx, "last", c.ok(2))
				})
				e.work(w, ctlReceive)
				h := start(e, w, none{}, bide.ID("it"))
				time.Sleep(time.Second)
				e.ok(e.client.Cancel(e.Context(), "it", ""))
				if _, err := result(e, h); !errors.Is(err, bide.ErrCanceled) {
					t.Errorf("a canceled run ended with %v", err)
				}
				time.Sleep(time.Second)
				e.ok(e.client.Retry(e.Context(), "it"))
				time.Sleep(time.Second)
				switch name {
				case "signal":
					e.ok(e.client.Signal(e.Context(), "it", "go", "x"))
				case "child":
					e.ok(e.client.Signal(e.Context(), "kid", "go", "x"))
				}
				if out, err := result(e, h); out != "ok" || err != nil {
					t.Errorf("got %q, %v; the history is\n\t%s", out, err, strings.Join(e.script("it"), "\n\t"))
				}
				if first, last := c.n[0].Load(), c.n[2].Load(); first != 1 || last != 1 {
					t.Errorf("the step before ran %d times, the one after %d", first, last)
				}
				time.Sleep(2 * time.Minute) // until the deaf one has returned
			})
		})
	}
}

// TestControlRetryTimedOut protects a timed-out run that is sent on: its deadline
// is lifted, and it goes on where it was.
func TestControlRetryTimedOut(t *testing.T) {
	inBubble(t, func(e *env) {
		var c ctlCalls
		w := bide.Define("ctl-late", func(ctx bide.Context, _ none) (string, error) {
			if _, err := ctlStep(ctx, "first", c.ok(0)); err != nil {
				return "", err
			}
			if err := bide.Sleep(ctx, 3*time.Hour); err != nil {
				return "", err
			}
			return ctlStep(ctx, "last", c.ok(1))
		})
		e.work(w)
		began := time.Now()
		h := start(e, w, none{}, bide.Timeout(time.Hour))
		_, err := result(e, h)
		ctlIs(e, err, bide.ErrTimeout)
		if took := time.Since(began); took < time.Hour || took > time.Hour+time.Second || bide.Code(err) != "run_timed_out" {
			t.Errorf("timed out after %v with code %q", took, bide.Code(err))
		}
		e.ok(e.client.Retry(e.Context(), h.ID()))
		if r := e.get(h.ID()); !r.Deadline.IsZero() || r.Error != nil || !r.EndedAt.IsZero() {
			t.Errorf("the retried run is %s", jsonOf(t, r))
		}
		if out, err := result(e, h); out != "ok" || err != nil {
			t.Errorf("got %q, %v", out, err)
		}
		if took := time.Since(began); took < 3*time.Hour || took > 3*time.Hour+time.Second {
			t.Errorf("it took %v, want the sleep's own 3 h", took)
		}
		c.want(e, 1, 1)
	})
}

// ctlWaits waits in the way that its input says, in path 1, for an hour or more.
func ctlWaits(checks *atomic.Int32) *bide.Workflow[string, string] {
	return bide.Define("ctl-waits", func(ctx bide.Context, kind string) (string, error) {
		switch kind {
		case "sleep":
			return "slept", bide.Sleep(ctx, time.Hour)
		case "signal":
			return bide.Receive[string](ctx, "w", bide.Timeout(time.Hour))
		case "poll":
			return bide.Poll(ctx, "w", func(context.Context) (string, error) { checks.Add(1); return "pending", nil },
				func(s string) bool { return s == "done" }, bide.Every(20*time.Minute), bide.Exact{}, bide.Timeout(time.Hour))
		case "child":
			return bide.Child(ctx, ctlReceive, none{})
		}
		return bide.Step(ctx, "w", func(context.Context) (string, error) { checks.Add(1); return "", errors.New("no") },
			bide.RetryPolicy{InitialInterval: time.Hour, NoJitter: true, MaximumAttempts: 2})
	})
}

var ctlKinds = map[string]bide.Kind{"sleep": bide.KindSleep, "signal": bide.KindReceive, "poll": bide.KindPoll, "child": bide.KindChild, "retry": bide.KindRetry}

// TestControlSettle protects a person's word: complete and fail end each kind of
// wait, parked or warm, in the place of the world, and the history says who did it.
func TestControlSettle(t *testing.T) {
	records := map[string][]string{"sleep": {"1 sleep", "1 sleep"}, "signal": {"1 signal w"}, "poll": {"1 poll w"},
		"child": {"1 child ctl-receive", "2 child ID:1"}, "retry": {"1 step w"}}
	for _, warm := range []bool{false, true} {
		inBubble(t, func(e *env) {
			var checks atomic.Int32
			w := ctlWaits(&checks)
			cfg := e.config()
			if warm {
				cfg.WarmFor = 1000 * time.Hour
			}
			e.workAs(cfg, w, ctlReceive)
			for kind, lines := range records {
				for _, by := range []string{"complete", "fail"} {
					id := kind + "-" + by
					h := start(e, w, kind, bide.ID(id))
					time.Sleep(time.Minute)
					wait := e.waitOf(id, ctlKinds[kind])
					name := wait.Name
					if name == "" {
						name = wait.Path
					}
					began := time.Now()
					want := slices.Clone(lines)
					last := len(want) - 1
					want[last] = strings.Replace(want[last], "ID", id, 1)
					if want[last] += " by " + by; by == "fail" {
						e.ok(e.client.Fail(e.Context(), id, name, "said so"))
						want[last] += " !said so"
					} else {
						e.ok(e.client.Complete(e.Context(), id, wait.Path, "given"))
					}
					out, err := result(e, h)
					switch {
					case by == "fail" && (err == nil || !strings.Contains(err.Error(), "said so")):
						t.Errorf("%s, warm %v: got %q, %v; want the error that was given", id, warm, out, err)
					case by == "complete" && (err != nil || out != "given" && kind != "sleep" || out != "slept" && kind == "sleep"):
						t.Errorf("%s, warm %v: got %q, %v; want the value that was given", id, warm, out, err)
					}
					if took := time.Since(began); took > time.Second {
						t.Errorf("%s, warm %v: it took %v", id, warm, took)
					}
					e.wantScript(id, want...)
					ctlIs(e, e.client.Complete(e.Context(), id, name, "again"), bide.ErrRunEnded)
					if kind == "child" { // nobody waits for it any more
						_, err := result(e, ctlReceive.Handle(e.client, name))
						ctlIs(e, err, bide.ErrCanceled)
					}
				}
			}
		})
	}
}

// TestControlExtend protects deadlines that a person moves: each kind of wait
// ends when it was told to, later or earlier, and the history tells of it.
func TestControlExtend(t *testing.T) {
	for _, by := range []time.Duration{time.Hour, -30 * time.Minute} {
		inBubble(t, func(e *env) {
			var checks atomic.Int32
			w := ctlWaits(&checks)
			e.work(w, ctlReceive)
			for kind, want := range map[string][]string{
				"sleep":  {"1 sleep", "1 extended"},
				"signal": {"1 extended w", fmt.Sprintf(`1 signal w !bide: signal "w": timed out after %v`, time.Hour+by)},
				"poll":   {"1 extended w", "1 poll w"},
				"retry":  {"1 extended w", `1 step w !bide: step "w" given up after 2 attempts (max_attempts): no`},
			} {
				id := kind
				began := time.Now()
				h := start(e, w, kind, bide.ID(id))
				time.Sleep(time.Minute)
				before := e.waitOf(id, ctlKinds[kind])
				e.ok(e.client.Extend(e.Context(), id, "1", by))
				time.Sleep(time.Minute)
				after := e.waitOf(id, ctlKinds[kind])
				if kind == "retry" {
					before.Until, after.Until = before.NextAt, after.NextAt
				}
				if moved := after.Until.Sub(before.Until); moved != by {
					t.Errorf("%s: the deadline moved by %v, want %v", kind, moved, by)
				}
				_, err := result(e, h)
				if took := time.Since(began); took < time.Hour+by || took > time.Hour+by+time.Second {
					t.Errorf("%s extended by %v ended after %v (%v)", kind, by, took, err)
				}
				got := e.script(id)
				if kind == "poll" {
					ctlIs(e, err, bide.ErrPollTimeout)
					if last := len(got) - 1; last >= 0 {
						got[last], _, _ = strings.Cut(got[last], " !")
					}
				}
				if !slices.Equal(got, want) {
					t.Errorf("the history is %q, want %q", got, want)
				}
			}
			// A child's end cannot be moved: the word is kept, and changes nothing.
			start(e, w, "child", bide.ID("child"))
			time.Sleep(time.Minute)
			e.ok(e.client.Extend(e.Context(), "child", "child:1", by))
			time.Sleep(24 * time.Hour)
			e.waitOf("child", bide.KindChild)
			e.wantScript("child", "1 child ctl-receive", "2 extended child:1")
		})
	}
}

// TestControlCheck protects "look now": a poll checks and a step tries at once;
// the others note it and wait on.
func TestControlCheck(t *testing.T) {
	inBubble(t, func(e *env) {
		var checks atomic.Int32
		w := ctlWaits(&checks)
		e.work(w, ctlReceive)
		for kind, want := range map[string][]string{
			"sleep":  {"1 sleep", "1 checked"},
			"signal": {"1 checked w"},
			"child":  {"1 child ctl-receive", "2 checked child:1"},
			"poll":   {"1 checked w"},
			"retry":  {"1 checked w", `1 step w !bide: step "w" given up after 2 attempts (max_attempts): no`},
		} {
			checks.Store(0)
			start(e, w, kind, bide.ID(kind))
			time.Sleep(time.Minute)
			before := e.waitOf(kind, ctlKinds[kind])
			e.ok(e.client.Check(e.Context(), kind, before.Path))
			time.Sleep(time.Second)
			switch n := checks.Load(); kind {
			case "poll", "retry":
				if n != 2 {
					t.Errorf("%s: %d calls, want one before and one at once", kind, n)
				}
			}
			if kind == "retry" {
				e.wantState(kind, bide.Failed)
			} else if after := e.waitOf(kind, ctlKinds[kind]); !after.Until.Equal(before.Until) || !after.Since.Equal(before.Since) {
				t.Errorf("%s: the wait changed from %s to %s", kind, jsonOf(t, before), jsonOf(t, after))
			}
			e.wantScript(kind, want...)
			_ = e.client.Terminate(e.Context(), kind, "")
		}
	})
}

// A look that somebody has asked for outlasts a crash in the middle of it.
func TestControlCheckInterrupted(t *testing.T) {
	for _, kind := range []string{"poll", "retry"} {
		inBubble(t, func(e *env) {
			var calls atomic.Int32
			call := func(ctx context.Context) (bool, error) {
				if calls.Add(1) == 2 {
					<-ctx.Done()
				}
				if done := calls.Load() > 2; done || kind == "poll" {
					return done, nil
				}
				return false, errors.New("not yet")
			}
			w := bide.Define("w", func(ctx bide.Context, _ none) (bool, error) {
				if kind == "poll" {
					return bide.Poll(ctx, "w", call, func(b bool) bool { return b }, bide.Timeout(240*time.Hour), bide.Every(24*time.Hour))
				}
				return bide.Step(ctx, "w", call, bide.RetryPolicy{InitialInterval: 24 * time.Hour, MaximumAttempts: 9})
			})
			first := e.work(w)
			h := start(e, w, none{})
			time.Sleep(time.Minute)
			e.ok(e.client.Check(e.Context(), h.ID(), "w"))
			time.Sleep(10 * time.Second)
			first.kill()
			crashed := time.Now()
			e.work(w)
			if ok, err := result(e, h); !ok || err != nil || time.Since(crashed) > time.Minute {
				t.Errorf("%s: %v, %v after %v", kind, ok, err, time.Since(crashed))
			}
		})
	}
}

// TestControlNotLive protects from a word about a wait that is not there: it is
// refused, and says what the run waits for.
func TestControlNotLive(t *testing.T) {
	inBubble(t, func(e *env) {
		var checks atomic.Int32
		w := ctlWaits(&checks)
		h := start(e, w, "signal", bide.ID("it"))
		acts := map[string]func(id, wait string) error{
			"check":    func(id, wait string) error { return e.client.Check(e.Context(), id, wait) },
			"extend":   func(id, wait string) error { return e.client.Extend(e.Context(), id, wait, time.Hour) },
			"complete": func(id, wait string) error { return e.client.Complete(e.Context(), id, wait, 1) },
			"fail":     func(id, wait string) error { return e.client.Fail(e.Context(), id, wait, "") },
		}
		for _, act := range acts { // queued: no wait is live yet
			ctlField(e, act("it", "w"), "wait")
		}
		e.work(w)
		time.Sleep(time.Minute)
		for what, act := range acts {
			for _, wait := range []string{"other", "2", ""} {
				err := act("it", wait)
				if ctlField(e, err, "wait"); !strings.Contains(err.Error(), "signal w") {
					t.Errorf("%s %q: %v does not say what the run waits for", what, wait, err)
				}
			}
			ctlIs(e, act("nobody", "w"), bide.ErrNotFound)
		}
		ctlField(e, e.client.Extend(e.Context(), "it", "w", 0), "duration")
		wantErr[*bide.CodecError](e, e.client.Complete(e.Context(), "it", "w", make(chan int)))
		wantErr[*bide.PayloadTooLargeError](e, e.client.Complete(e.Context(), "it", "w", strings.Repeat("x", bide.MaxPayload)))
		e.ok(e.client.Fail(e.Context(), "it", "w", ""))
		if _, err := result(e, h); err == nil || !strings.Contains(err.Error(), "failed by hand") {
			t.Errorf("got %v", err)
		}
	})
}

// TestControlWaiting protects what a run says it waits for: data, for each kind
// of wait, also several side by side.
func TestControlWaiting(t *testing.T) {
	inBubble(t, func(e *env) {
		var checks atomic.Int32
		w := ctlWaits(&checks)
		side := bide.Define("ctl-side", func(ctx bide.Context, _ none) (string, error) {
			_, err := bide.All(ctx, bide.Branch("a", func(ctx bide.Context) (string, error) { return bide.Receive[string](ctx, "x") }),
				bide.Branch("b", func(ctx bide.Context) (string, error) { return "", bide.Sleep(ctx, time.Hour) }))
			return "", err
		})
		stuck := bide.Define("ctl-stuck", func(bide.Context, none) (string, error) { panic("oh no") })
		began := time.Now()
		e.work(w, side, stuck, ctlReceive)
		for kind := range ctlKinds {
			start(e, w, kind, bide.ID(kind))
		}
		start(e, side, none{}, bide.ID("side"))
		start(e, stuck, none{}, bide.ID("stuck"))
		start(e, ctlEcho, "x", bide.ID("queue"), bide.Queue("q"))
		start(e, ctlEcho, "x", bide.ID("delay"), bide.Delay(time.Hour))
		start(e, ctlEcho, "x", bide.ID("pause"))
		e.ok(e.client.Pause(e.Context(), "pause"))
		time.Sleep(500 * time.Millisecond)
		for id, want := range map[string]struct {
			state bide.State
			waits []bide.Wait
		}{
			"sleep":  {bide.Waiting, []bide.Wait{{Path: "1", Kind: bide.KindSleep, Since: began, Until: began.Add(time.Hour)}}},
			"signal": {bide.Waiting, []bide.Wait{{Path: "1", Kind: bide.KindReceive, Name: "w", Since: began, Until: began.Add(time.Hour)}}},
			"poll": {bide.Waiting, []bide.Wait{{Path: "1", Kind: bide.KindPoll, Name: "w", Since: began, Until: began.Add(time.Hour),
				NextAt: began.Add(20 * time.Minute), Attempt: 1, LastValue: json.RawMessage(`"pending"`), Poll: &bide.PollState{
					State: wait.State{Start: began, Pending: 1}, Base: 20 * time.Minute, LastPending: began, Log: bide.PollLog{Counts: map[string]int{"pending": 1},
						Checks: []bide.CheckLine{{At: began, Outcome: wait.Pending}},
						Values: []bide.ValueLine{{At: began, Value: json.RawMessage(`"pending"`)}}}}}}},
			"child": {bide.Waiting, []bide.Wait{{Path: "2", Kind: bide.KindChild, Name: "child:1", Since: began}}},
			"retry": {bide.Waiting, []bide.Wait{{Path: "1", Kind: bide.KindRetry, Name: "w", Since: began, NextAt: began.Add(time.Hour), Attempt: 1,
				LastError: bide.NewFailure(errors.New("no")), LastErrAt: began,
				Poll: &bide.PollState{State: wait.State{Start: began}, Log: bide.PollLog{Checks: []bide.CheckLine{{At: began, Last: began, Outcome: wait.Transient, Error: "no"}}}}}}},
			"side": {bide.Waiting, []bide.Wait{{Path: "1.1", Kind: bide.KindReceive, Name: "x", Since: began},
				{Path: "2.1", Kind: bide.KindSleep, Since: began, Until: began.Add(time.Hour)}}},
			"queue": {bide.Queued, []bide.Wait{{Kind: bide.KindQueue, Name: "q", Since: began}}},
			"delay": {bide.Waiting, []bide.Wait{{Kind: bide.KindSleep, Name: "delay", Since: began, Until: began.Add(time.Hour)}}},
			"pause": {bide.Paused, []bide.Wait{{Kind: bide.KindPause}}},
		} {
			r := e.get(id)
			for i := range want.waits { // in the store's clock
				x := &want.waits[i]
				for _, at := range []*time.Time{&x.Since, &x.Until, &x.NextAt, &x.LastErrAt} {
					if !at.IsZero() {
						*at = at.UTC().Round(0)
					}
				}
				if p := x.Poll; p != nil {
					at := x.Since
					p.Start, p.Log.Checks[0].At = at, at
					if x.Kind == bide.KindPoll {
						p.LastPending, p.Log.Values[0].At = at, at
					} else {
						p.Log.Checks[0].Last = at
					}
				}
			}
			if got, want := jsonOf(t, r.Waiting), jsonOf(t, want.waits); got != want {
				t.Errorf("%s waits for\n\t%s, want\n\t%s", id, got, want)
			}
			if r.State != want.state {
				t.Errorf("%s is %v, want %v", id, r.State, want.state)
			}
		}
		x := e.waitOf("stuck", bide.KindStuck)
		if x.Attempt != 1 || !x.NextAt.Equal(began.Add(time.Second)) || x.LastError.Code != "panic" || x.LastError.Message != "panic: oh no" {
			t.Errorf("the stuck run waits for %s", jsonOf(t, x))
		}
	})
}

// TestControlRuns protects the list of runs: newest first, filtered, in pages
// that neither repeat nor miss a run.
func TestControlRuns(t *testing.T) {
	inBubble(t, func(e *env) {
		for i := range 25 {
			id, team := fmt.Sprintf("a-%02d", i), "even"
			if i%2 == 1 {
				team = "odd"
			}
			start(e, ctlEcho, "x", bide.ID(id), bide.Labels{"team": team, "all": "yes"})
		}
		start(e, ctlReceive, none{}, bide.ID("b"), bide.Queue("q"))
		e.ok(e.client.Terminate(e.Context(), "a-07", ""))
		list := func(q bide.Query) (ids []string) {
			runs, err := e.client.Runs(e.Context(), q)
			e.ok(err)
			for _, r := range runs {
				ids = append(ids, r.ID)
				if r.Input != nil || r.Result != nil || r.Values != nil {
					t.Errorf("the list holds payloads: %s", jsonOf(t, r))
				}
			}
			return ids
		}
		for _, c := range []struct {
			q     bide.Query
			n     int
			first string
		}{
			{bide.Query{}, 26, "b"},
			{bide.Query{Workflow: "ctl-echo"}, 25, "a-24"},
			{bide.Query{Queue: "q"}, 1, "b"},
			{bide.Query{IDPrefix: "a-1"}, 10, "a-19"},
			{bide.Query{Labels: map[string]string{"team": "odd", "all": "yes"}}, 12, "a-23"},
			{bide.Query{Labels: map[string]string{"team": "none"}}, 0, ""},
			{bide.Query{States: []bide.State{bide.Terminated}}, 1, "a-07"},
			{bide.Query{States: []bide.State{bide.Queued, bide.Terminated}, Workflow: "ctl-echo", Limit: 3}, 3, "a-24"},
			{bide.Query{States: []bide.State{bide.Succeeded}}, 0, ""},
			{bide.Query{Parent: "b"}, 0, ""},
		} {
			got := list(c.q)
			if len(got) != c.n || c.n > 0 && got[0] != c.first {
				t.Errorf("%+v gave %q, want %d from %q", c.q, got, c.n, c.first)
			}
		}
		var paged []string
		q := bide.Query{Labels: map[string]string{"team": "even"}, Limit: 4}
		for page := list(q); len(page) > 0; page = list(q) {
			paged = append(paged, page...)
			q.Before = page[len(page)-1]
			start(e, ctlEcho, "x", bide.Labels{"team": "even"}) // newer ones do not shift the pages
		}
		if len(paged) != 13 || paged[0] != "a-24" || paged[12] != "a-00" || !slices.IsSortedFunc(paged, func(a, b string) int { return strings.Compare(b, a) }) {
			t.Errorf("the pages are %q", paged)
		}
		for _, limit := range []int{-1, 1001} {
			_, err := e.client.Runs(e.Context(), bide.Query{Limit: limit})
			ctlField(e, err, "limit")
		}
		_, err := e.client.Runs(e.Context(), bide.Query{Before: "nobody"})
		ctlIs(e, err, bide.ErrNotFound)
	})
}

// TestControlWatch protects watchers: they see the run as it is, its changes in
// order, and its end; or their own.
func TestControlWatch(t *testing.T) {
	inBubble(t, func(e *env) {
		h := start(e, ctlReceive, none{})
		time.AfterFunc(time.Minute, func() { e.work(ctlReceive) })
		time.AfterFunc(time.Hour, func() { e.ok(e.client.Signal(e.Context(), h.ID(), "go", "x")) })
		var states []bide.State
		version := int64(-1)
		for r, err := range e.client.Watch(e.Context(), h.ID()) {
			e.ok(err)
			if r.Version <= version {
				t.Errorf("version %d after %d", r.Version, version)
			}
			version = r.Version
			if len(states) == 0 || states[len(states)-1] != r.State {
				states = append(states, r.State)
			}
		}
		if n := len(states); n < 3 || states[0] != bide.Queued || states[n-1] != bide.Succeeded || !slices.Contains(states, bide.Waiting) {
			t.Errorf("seen were %v", states)
		}
		for _, err := range e.client.Watch(e.Context(), "nobody") {
			ctlIs(e, err, bide.ErrNotFound)
		}
		other := start(e, ctlReceive, none{})
		ctx, cancel := context.WithTimeout(e.Context(), time.Hour)
		defer cancel()
		var last error
		for _, last = range e.client.Watch(ctx, other.ID()) {
		}
		ctlIs(e, last, context.DeadlineExceeded)
		for range e.client.Watch(e.Context(), other.ID()) {
			break // is allowed
		}
	})
}

// TestControlValue protects values that a run publishes: readable while it lives and after.
func TestControlValue(t *testing.T) {
	inBubble(t, func(e *env) {
		w := bide.Define("ctl-publish", func(ctx bide.Context, _ none) (string, error) {
			if err := bide.Publish(ctx, "n", 1); err != nil {
				return "", err
			}
			if _, err := bide.Receive[string](ctx, "go"); err != nil {
				return "", err
			}
			return "ok", bide.Publish(ctx, "n", 2)
		})
		e.work(w)
		h := start(e, w, none{})
		time.Sleep(time.Second)
		want := func(key string, n int) {
			t.Helper()
			var got int
			if found, err := e.client.Value(e.Context(), h.ID(), key, &got); err != nil || got != n || found != (n > 0) {
				t.Errorf("value %s is %d (%v, %v), want %d", key, got, found, err, n)
			}
		}
		want("n", 1)
		want("other", 0)
		var text string
		_, err := e.client.Value(e.Context(), h.ID(), "n", &text)
		wantErr[*bide.CodecError](e, err)
		_, err = e.client.Value(e.Context(), "nobody", "n", &text)
		ctlIs(e, err, bide.ErrNotFound)
		e.ok(e.client.Signal(e.Context(), h.ID(), "go", "x"))
		_, err = result(e, h)
		e.ok(err)
		want("n", 2)
	})
}

var errCtlOwn = errors.New("ctl: the workflow's own")

// ctlOwnError is registered, so that it comes back as itself.
type ctlOwnError struct{ Left int }

func (e *ctlOwnError) Error() string { return fmt.Sprintf("ctl: %d left", e.Left) }

func init() { bide.RegisterError(errCtlOwn, &ctlOwnError{}) }

// TestControlResultErrors protects the errors of a result: the caller's own ctx,
// a run that is not there, and the workflow's errors with their identity.
func TestControlResultErrors(t *testing.T) {
	inBubble(t, func(e *env) {
		w := bide.Define("ctl-errors", func(_ bide.Context, what string) (string, error) {
			switch what {
			case "value":
				return "", fmt.Errorf("while working: %w", errCtlOwn)
			case "type":
				return "", &ctlOwnError{7}
			}
			return "", errors.New("plain")
		})
		h := start(e, ctlReceive, none{})
		ctx, cancel := context.WithTimeout(e.Context(), time.Hour)
		defer cancel()
		began := time.Now()
		_, err := h.Result(ctx)
		if ctlIs(e, err, context.DeadlineExceeded); time.Since(began) != time.Hour || errors.Is(err, bide.ErrTimeout) {
			t.Errorf("got %v after %v", err, time.Since(began))
		}
		e.wantState(h.ID(), bide.Queued) // it goes on
		_, err = ctlReceive.Handle(e.client, "nobody").Result(e.Context())
		ctlIs(e, err, bide.ErrNotFound)
		_, err = e.client.Get(e.Context(), "nobody")
		ctlIs(e, err, bide.ErrNotFound)

		e.work(w)
		_, err = result(e, start(e, w, "value"))
		ctlIs(e, err, errCtlOwn)
		if r := wantErr[*bide.RunError](e, err); r.State != bide.Failed || bide.Code(err) != "run_failed" || !strings.Contains(err.Error(), "while working") {
			t.Errorf("got %v, code %q", err, bide.Code(err))
		}
		_, err = result(e, start(e, w, "type"))
		if own := wantErr[*ctlOwnError](e, err); own.Left != 7 {
			t.Errorf("got %+v", own)
		}
		_, err = result(e, start(e, w, "plain"))
		if s := wantErr[*bide.StepError](e, err); s.Message != "plain" || s.Type != "*errors.errorString" {
			t.Errorf("got %+v", s)
		}
		for _, target := range []error{bide.ErrCanceled, bide.ErrTerminated, bide.ErrTimeout} {
			if errors.Is(err, target) {
				t.Errorf("%v matches %v", err, target)
			}
		}
	})
}

// TestControlHistoryAfter protects readers that go on where they were: they get
// what came after a record, in order, and nothing twice.
func TestControlHistoryAfter(t *testing.T) {
	inBubble(t, func(e *env) {
		w := bide.Define("ctl-history", func(ctx bide.Context, _ none) (string, error) {
			for i := range 5 {
				if _, err := ctlStep(ctx, fmt.Sprint("s", i), func(context.Context) (string, error) { return "x", nil }); err != nil {
					return "", err
				}
			}
			return "ok", nil
		})
		e.work(w)
		h := start(e, w, none{})
		_, err := result(e, h)
		e.ok(err)
		all := e.history(h.ID())
		if len(all) != 5 {
			t.Fatalf("the history is %q", e.script(h.ID()))
		}
		for i, r := range all {
			rest, err := e.client.History(e.Context(), h.ID(), r.Seq)
			e.ok(err)
			if got, want := jsonOf(t, append([]bide.Record{}, rest...)), jsonOf(t, append([]bide.Record{}, all[i+1:]...)); got != want {
				t.Errorf("after record %d: %s, want %s", i, got, want)
			}
		}
		_, err = e.client.History(e.Context(), "nobody", 0)
		ctlIs(e, err, bide.ErrNotFound)
	})
}

// TestControlRetryChildCutShort protects a parent that failed for another reason
// than its child: retried, it waits again for the child that its end had canceled.
func TestControlRetryChildCutShort(t *testing.T) {
	inBubble(t, func(e *env) {
		var c ctlCalls
		w := bide.Define("ctl-parent", func(ctx bide.Context, _ none) (string, error) {
			kid, err := bide.StartChild(ctx, ctlReceive, none{}, bide.ID("kid"))
			if err != nil {
				return "", err
			}
			if _, err := ctlStep(ctx, "fails", c.failFirst(0, 1)); err != nil {
				return "", err
			}
			return kid.Result(ctx)
		})
		e.work(w, ctlReceive)
		h := start(e, w, none{}, bide.ID("it"))
		_, err := result(e, h)
		if err == nil {
			t.Fatal("it did not fail")
		}
		time.Sleep(time.Second)
		e.wantState("kid", bide.Canceled)
		e.ok(e.client.Retry(e.Context(), "it"))
		time.Sleep(time.Second)
		e.ok(e.client.Signal(e.Context(), "kid", "go", "x"))
		if out, err := result(e, h); out != "x" || err != nil {
			t.Errorf("got %q, %v", out, err)
		}
		c.want(e, 2)
	})
}

// TestControlRetryMended protects a run that failed with no step to blame: once
// its code is mended a retry goes on with all that it has done.
func TestControlRetryMended(t *testing.T) {
	inBubble(t, func(e *env) {
		var c ctlCalls
		define := func(err error) *bide.Workflow[none, string] {
			return bide.Define("ctl-mended", func(ctx bide.Context, _ none) (string, error) {
				s, serr := ctlStep(ctx, "work", c.ok(0))
				return s, errors.Join(serr, err)
			})
		}
		broken := define(errors.New("a bug"))
		e.work(broken)
		h := start(e, broken, none{})
		_, err := result(e, h)
		wantErr[*bide.RunError](e, err)
		e.restart(define(nil))
		e.ok(e.client.Retry(e.Context(), h.ID()))
		if out, err := result(e, h); out != "ok" || err != nil {
			t.Errorf("got %q, %v", out, err)
		}
		c.want(e, 1)
	})
}

// TestControlRetryBothFailed protects a run whose parallel branches failed side
// by side: it can be brought to its end by retries, finished steps are kept.
func TestControlRetryBothFailed(t *testing.T) {
	inBubble(t, func(e *env) {
		var c ctlCalls
		w := bide.Define("ctl-both", func(ctx bide.Context, _ none) (string, error) {
			part := func(i int) func(bide.Context) (string, error) {
				return func(ctx bide.Context) (string, error) {
					if _, err := ctlStep(ctx, "before", c.ok(i+2)); err != nil {
						return "", err
					}
					return ctlStep(ctx, "fails", c.failFirst(i, 1))
				}
			}
			_, err := bide.All(ctx, bide.Branch("a", part(0)), bide.Branch("b", part(1)))
			return "ok", err
		})
		e.work(w)
		h := start(e, w, none{})
		retries := 0
		for _, err := result(e, h); err != nil && retries < 5; retries++ {
			e.ok(e.client.Retry(e.Context(), h.ID()))
			_, err = result(e, h)
		}
		e.wantState(h.ID(), bide.Succeeded)
		if retries > 2 {
			t.Errorf("%d retries for two failed branches", retries)
		}
		t.Logf("%d retries", retries)
		c.want(e, 2, 2, 1, 1)
	})
}

// TestControlRetryTerminated protects a terminated run that is sent on: it goes on where it was.
func TestControlRetryTerminated(t *testing.T) {
	inBubble(t, func(e *env) {
		var c ctlCalls
		w := bide.Define("ctl-terminated", func(ctx bide.Context, _ none) (string, error) {
			if _, err := ctlStep(ctx, "first", c.ok(0)); err != nil {
				return "", err
			}
			return bide.Receive[string](ctx, "go")
		})
		e.work(w)
		h := start(e, w, none{})
		time.Sleep(time.Second)
		e.ok(e.client.Terminate(e.Context(), h.ID(), ""))
		e.ok(e.client.Retry(e.Context(), h.ID()))
		e.ok(e.client.Signal(e.Context(), h.ID(), "go", "x"))
		if out, err := result(e, h); out != "x" || err != nil {
			t.Errorf("got %q, %v", out, err)
		}
		c.want(e, 1)
	})
}

// TestControlSettlePaused protects a person's word to a paused run: it is kept,
// and taken up once the run is resumed.
func TestControlSettlePaused(t *testing.T) {
	inBubble(t, func(e *env) {
		e.work(ctlReceive)
		h := start(e, ctlReceive, none{})
		time.Sleep(time.Second)
		e.ok(e.client.Pause(e.Context(), h.ID()))
		e.ok(e.client.Complete(e.Context(), h.ID(), "go", "given"))
		time.Sleep(time.Hour)
		e.wantState(h.ID(), bide.Paused)
		e.ok(e.client.Resume(e.Context(), h.ID()))
		if out, err := result(e, h); out != "given" || err != nil {
			t.Errorf("got %q, %v", out, err)
		}
		e.wantScript(h.ID(), "1 signal go by complete")
	})
}

// TestControlCancelPausing protects a cancel that comes while a pause waits for a
// step in flight, beside a branch that has left already: the step is told at once.
func TestControlCancelPausing(t *testing.T) {
	inBubble(t, func(e *env) {
		w := bide.Define("ctl-pausing", func(ctx bide.Context, _ none) (string, error) {
			_, err := bide.All(ctx,
				bide.Branch("long", func(ctx bide.Context) (string, error) {
					return ctlStep(ctx, "long", func(ctx context.Context) (string, error) {
						select {
						case <-ctx.Done():
							return "", ctx.Err()
						case <-time.After(5 * time.Minute):
							return "ok", nil
						}
					})
				}),
				bide.Branch("short", func(ctx bide.Context) (string, error) {
					for range 3 {
						_, err := ctlStep(ctx, "short", func(context.Context) (string, error) { time.Sleep(2 * time.Second); return "ok", nil })
						if err != nil {
							return "", err
						}
					}
					return "ok", nil
				}))
			return "", err
		})
		e.work(w)
		h := start(e, w, none{})
		time.Sleep(time.Second)
		e.ok(e.client.Pause(e.Context(), h.ID()))
		time.Sleep(5 * time.Second)
		began := time.Now()
		e.ok(e.client.Cancel(e.Context(), h.ID(), ""))
		_, err := result(e, h)
		ctlIs(e, err, bide.ErrCanceled)
		if took := time.Since(began); took > 11*time.Second {
			t.Errorf("the run ended %v after its cancel, want at most the 10 s that a step in flight is given", took)
		}
	})
}
