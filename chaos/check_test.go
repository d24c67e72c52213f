package main

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// tale is evidence in the making: a run of three steps that went well.
type tale struct{ evidence }

var zero = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

func at(seconds float64) time.Time { return zero.Add(time.Duration(seconds * float64(time.Second))) }

// does adds a call from one moment to another.
func (s *tale) does(place, call, prev, node string, from, to float64) *event {
	e := event{What: begin, Job: "j", Place: place, Call: call, Prev: prev, Node: node, Sent: at(from)}
	over := e
	over.What, over.Sent = end, at(to)
	s.Events = append(s.Events, over, e)
	return &s.Events[len(s.Events)-1]
}

func (s *tale) beats(call, node string, due, from float64) {
	e := event{What: beat, Job: loopName, Call: call, Node: node, Sent: at(from), Due: at(due)}
	over := e
	over.What, over.Sent = ebb, at(from+0.01)
	s.Events = append(s.Events, e, over)
}

func (s *tale) window(kind, node string, from, to float64) {
	s.Windows = append(s.Windows, window{Fault: kind, Kind: kind, Node: node, From: at(from), To: at(to)})
}

func good() *tale {
	s := &tale{evidence{Lease: 2 * time.Second}}
	s.does("0.0.plain", "a", "", "w0#1", 1, 1.1)
	s.does("0.1.once", "b", "a", "w0#1", 2, 2.1)
	s.does("0.2.sleep", "c", "b", "w1#1", 4, 4.1).Due = at(3.9)
	s.does("0.3.signal", "d", "c", "w1#1", 5, 5.1)
	s.Outcomes = []outcome{{Job: job{ID: "j", Rounds: [][]string{{"plain", "once", "sleep", "signal"}}}, Run: "r", State: "succeeded",
		Story: story{Calls: []call{{"0.0.plain", "a"}, {"0.1.once", "b"}, {"0.2.sleep", "c"}, {"0.3.signal", "d"}},
			Got: []string{"j/0.3.signal/1", "j/0.3.signal/0"}}}}
	for i := range 10 {
		s.beats(fmt.Sprint("beat", i), "w0#1", float64(i), float64(i)+0.01)
	}
	return s
}

// The checker finds each kind of violation where there is one, and nothing else.
func TestCheck(t *testing.T) {
	for name, c := range map[string]struct {
		tell func(*tale)
		want []string // rules
	}{
		"all is well":            {func(*tale) {}, nil},
		"no start":               {func(s *tale) { s.Outcomes[0].Run = "" }, []string{"start"}},
		"a run is gone":          {func(s *tale) { s.Outcomes[0].State = "lost" }, []string{"lost run"}},
		"a run failed":           {func(s *tale) { s.Outcomes[0].State = "failed" }, []string{"lost run"}},
		"a result is not told":   {func(s *tale) { s.Outcomes[0].Unheard = true }, []string{"result"}},
		"a step is missing":      {func(s *tale) { s.Outcomes[0].Story.Calls = slices.Delete(s.Outcomes[0].Story.Calls, 1, 2) }, []string{"story", "kept"}},
		"a result is empty":      {func(s *tale) { s.Outcomes[0].Story.Calls[3].Call = "" }, []string{"story"}},
		"a signal is lost":       {func(s *tale) { s.Outcomes[0].Story.Got = s.Outcomes[0].Story.Got[:1] }, []string{"signal"}},
		"a signal comes twice":   {func(s *tale) { s.Outcomes[0].Story.Got = append(s.Outcomes[0].Story.Got, "j/0.3.signal/0") }, []string{"signal"}},
		"a kept step has no end": {func(s *tale) { s.Outcomes[0].Story.Calls[3].Call = "x" }, []string{"kept"}},
		"a result is replaced": {func(s *tale) {
			s.does("0.0.plain", "a2", "", "w1#1", 1.5, 1.6)
			s.Outcomes[0].Story.Calls[0].Call = "a2"
		}, []string{"kept"}},
		"a step runs again after it was kept":  {func(s *tale) { s.does("0.0.plain", "a2", "", "w1#1", 3, 3.1) }, []string{"rerun"}},
		"a step runs again before it was kept": {func(s *tale) { s.does("0.0.plain", "a0", "", "w1#1", 0.5, 0.6) }, nil},
		"an at-most-once step is called twice": {func(s *tale) { s.does("0.1.once", "b0", "a", "w1#1", 1.5, 1.6) }, []string{"at most once"}},
		"two calls of a step at once":          {func(s *tale) { s.does("0.0.plain", "a0", "", "w1#1", 0.5, 1.05) }, []string{"overlap"}},
		"branches at once": {func(s *tale) {
			s.does("x", "x", "a", "w0#1", 1.3, 1.5).Lane, s.does("y", "y", "a", "w1#1", 1.4, 1.6).Lane = "a", "b"
		}, nil},
		"a step begins before what it builds on": {func(s *tale) { s.does("0.9.x", "x", "d", "w1#1", 5.05, 5.2) }, []string{"overlap", "overlap"}},
		"a timer is early":                       {func(s *tale) { s.does("t", "t", "", "w0#1", 6, 6.1).Due = at(7) }, []string{"early timer"}},
		"a timer is late":                        {func(s *tale) { s.does("t", "t", "", "w0#1", 9, 9.1).Due = at(6) }, []string{"late timer"}},
		"a timer is a little late":               {func(s *tale) { s.does("t", "t", "", "w0#1", 9, 9.1).Due = at(7.5) }, nil},
		"a timer is late by a fault": {func(s *tale) {
			s.window("cut", "w0", 6.5, 8)
			s.does("t", "t", "", "w0#1", 9, 9.1).Due = at(6)
		}, nil},
		"a timer is late though a fault is healed": {func(s *tale) {
			s.window("cut", "w0", 3.5, 6.5)
			s.does("t", "t", "", "w0#1", 9, 9.1).Due = at(6)
		}, []string{"late timer"}},
		"a timer is late by a lease": {func(s *tale) {
			s.window("kill", "w0", 6, 6.1)
			s.does("t", "t", "", "w0#1", 9, 9.1).Due = at(6)
		}, nil},
		"a skewed clock is no excuse": {func(s *tale) {
			s.window("skew", "w0", 6, 9)
			s.does("t", "t", "", "w0#1", 9, 9.1).Due = at(6)
		}, []string{"late timer"}},
		"an iteration again":              {func(s *tale) { s.beats("again", "w1#1", 4, 4.5) }, []string{"loop twice"}},
		"an iteration after the next":     {func(s *tale) { s.beats("again", "w1#1", 3, 4.5) }, []string{"loop twice"}},
		"an iteration again after a kill": {func(s *tale) { s.window("kill", "w0", 4.2, 4.3); s.beats("again", "w1#1", 4, 4.5) }, nil},
		"two iterations at once":          {func(s *tale) { s.beats("again", "w1#1", 4.015, 4.015) }, []string{"overlap"}},
		"the loop rests":                  {func(s *tale) { s.beats("late", "w1#1", 12, 12) }, []string{"late loop"}},
		"a zombie": {func(s *tale) {
			s.window("stop", "w2", 2, 5.9)
			s.does("0.0.plain", "a2", "", "w2#1", 6, 6.1)
			s.beats("again", "w2#1", 3, 6.2)
		}, nil},
		"a zombie that goes on": {func(s *tale) {
			s.window("stop", "w2", 2, 5)
			s.does("0.0.plain", "a2", "", "w2#1", 6, 6.1)
		}, []string{"rerun"}},
	} {
		s := good()
		c.tell(s)
		var got []string
		found := check(s.evidence)
		for _, v := range found {
			got = append(got, v.Rule)
		}
		slices.Sort(got)
		slices.Sort(c.want)
		if !slices.Equal(slices.Compact(got), slices.Compact(c.want)) {
			t.Errorf("%s: found %v, want %v", name, found, c.want)
		}
	}
}

// The longest calm between two moments, with faults and stalls in between.
func TestCalm(t *testing.T) {
	s := &tale{evidence{Lease: 2 * time.Second}}
	s.window("cut", "w0", 10, 13)
	s.window("crash", "db", 12, 14)
	s.Stalls = []window{{Kind: "stall", From: at(20), To: at(21)}}
	c := &checker{evidence: s.evidence}
	for _, x := range []struct{ from, to, want float64 }{{0, 5, 5}, {9, 15, 1}, {9, 19, 5}, {11, 13.5, 0}, {14, 22, 6}, {19, 25, 4}, {5, 4, 0}} {
		if got := c.calm(at(x.from), at(x.to)); got != time.Duration(x.want*float64(time.Second)) {
			t.Errorf("from %v to %v: %v of calm, want %v s", x.from, x.to, got, x.want)
		}
	}
}
