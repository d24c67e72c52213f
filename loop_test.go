package bide_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/bide-dev/bide"
)

// looped is a loop's function by its outcomes, and when it ran.
type looped struct {
	*clock
	fails map[int]bool // by number, from 1
}

func (s *looped) run(context.Context) error {
	s.tick()
	if s.fails[len(s.ticks())] {
		return errors.New("down")
	}
	return nil
}

func (e *env) loopState(name string) bide.LoopState {
	e.Helper()
	s, err := e.client.Loop(name).State(e.Context())
	if err != nil {
		e.Fatal(err)
	}
	return s
}

const sec = time.Second

// Failures double the interval up to the cap, a success brings it back at once.
func TestLoopBacksOff(t *testing.T) {
	inBubble(t, func(e *env) {
		s := &looped{clock: newClock(), fails: map[int]bool{2: true, 3: true, 4: true, 5: true}}
		e.work(bide.Loop("weather", s.run, bide.Every(10*sec), bide.MaxMultiplier(8), bide.Exact{}))
		time.Sleep(50*sec + sec/2)
		if st := e.loopState("weather"); st.Failures != 2 || st.Multiplier != 4 || st.Effective != 40*sec || st.LastError == nil || st.Iterations != 3 {
			t.Errorf("after two failures: %+v", st)
		}
		time.Sleep(250 * sec)
		s.want(e, "iterations", 10*sec, 20*sec, 40*sec, 80*sec, 160*sec, 240*sec, 250*sec, 260*sec, 270*sec, 280*sec, 290*sec, 300*sec)
		st := e.loopState("weather")
		if st.Failures != 0 || st.Multiplier != 1 || st.Effective != 10*sec || st.Outcomes != "sffffsssssss" || !st.LastSuccessAt.Equal(st.LastAt) {
			t.Errorf("after the recovery: %+v", st)
		}
		if h, err := e.client.History(e.Context(), "loop:weather", 0); err != nil || len(h) != 0 {
			t.Errorf("the loop left %d records, %v", len(h), err)
		}
	})
}
