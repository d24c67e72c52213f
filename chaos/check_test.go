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
	e := event{What: beat, Job: loopName, Call: call, Node: node, Sent: at(from), Due: at(due), Key: fmt.Sprint(due)}
	over := e
	over.What, over.Sent = ebb, at(from+0.01)
	s.Events = append(s.Events, e, over)
}

func (s *tale) window(kind, node string, from, to float64) {
	s.Windows = append(s.Windows, window{Fault: kind, Kind: kind, Node: node, From: at(from), To: at(to)})
}

// note adds what a patron has done.
func (s *tale) note(what, job, place string, sent, acked float64) {
	s.Events = append(s.Events, event{What: what, Job: job, Place: place, Sent: at(sent), At: at(acked)})
}

func (s *tale) looks(node string, from float64) {
	s.Events = append(s.Events, event{What: look, Job: "j", Place: "0.0.share", Call: fmt.Sprint("look", from), URL: sharePrefix + "x", Node: node, Sent: at(from)})
}

// tells makes the run another one, which has taken these verbs.
func (s *tale) tells(names ...string) *outcome {
	o := &s.Outcomes[0]
	o.Job.Rounds, o.Story = [][]string{names}, story{}
	s.Events = slices.DeleteFunc(s.Events, func(e event) bool { return e.Job == "j" })
	for i, name := range names {
		p := place(0, i, name)
		for n, step := range verbs[name].steps(p) {
			made := fmt.Sprintf("%012d", 10*i+n)
			s.does(step, made, o.Story.last(), "w0#1", float64(i)+float64(n)/10, float64(i)+float64(n)/10+0.05)
			o.Story.Calls = append(o.Story.Calls, call{step, made})
		}
	}
	o.Story.Got = gets(o.Job)
	return o
}

func good() *tale {
	s := &tale{evidence{Lease: 2 * time.Second, Late: 2 * time.Second}}
	s.does("0.0.plain", "a", "", "w0#1", 1, 1.1)
	s.does("0.1.once", "b", "a", "w0#1", 2, 2.1)
	s.does("0.2.sleep", "c", "b", "w1#1", 4, 4.1).Due = at(3.9)
	s.does("0.3.signal", "d", "c", "w1#1", 5, 5.1)
	s.Outcomes = []outcome{{Job: job{ID: "j", Rounds: [][]string{{"plain", "once", "sleep", "signal"}}}, Run: "r", State: "succeeded",
		Story: story{Calls: []call{{"0.0.plain", "a"}, {"0.1.once", "b"}, {"0.2.sleep", "c"}, {"0.3.signal", "d"}},
			Got: []string{"j/0.3.signal/1", "j/0.3.signal/0"}}}}
	s.Listed = []string{"q", "r"}
	for i := range 10 {
		s.beats(fmt.Sprint("beat", i), "w0#1", float64(i), float64(i)+0.01)
	}
	return s
}

// tales are stories with the rules that are broken in them.
type tales map[string]struct {
	tell func(*tale)
	want []string
}

// judge sees to it that the checker finds what there is, and nothing else.
func (all tales) judge(t *testing.T) {
	for name, c := range all {
		s := good()
		c.tell(s)
		var got, texts []string
		for _, v := range check(s.evidence) {
			got, texts = append(got, v.Rule), append(texts, v.Rule+": "+v.What)
		}
		slices.Sort(got)
		slices.Sort(c.want)
		if !slices.Equal(slices.Compact(got), slices.Compact(c.want)) {
			t.Errorf("%s: found %q, want %v", name, texts, c.want)
		}
	}
}

// What a run has done, as its story and the witness tell it.
func TestCheck(t *testing.T) {
	tales{
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
	}.judge(t)
}
