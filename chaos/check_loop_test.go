package main

import "testing"

// Iterations of loops: too many, too few.
func TestCheckLoop(t *testing.T) {
	chore := func(s *tale, call string, due, from float64) {
		e := event{What: beat, Job: choreName, Call: call, Node: "w0#1", Sent: at(from), Due: at(due), Key: call}
		s.Events = append(s.Events, e)
	}
	tales{
		"an iteration again":              {func(s *tale) { s.beats("again", "w1#1", 4, 4.5) }, []string{"loop twice"}},
		"an iteration after the next":     {func(s *tale) { s.beats("again", "w1#1", 3, 4.5) }, []string{"loop twice"}},
		"an iteration again after a kill": {func(s *tale) { s.window("kill", "w0", 4.2, 4.3); s.beats("again", "w1#1", 4, 4.5) }, nil},
		"an iteration again after it was let go": {func(s *tale) {
			s.LetGo = []window{{Kind: "let go", Node: "w0", From: at(2.3), To: at(4.3)}}
			s.beats("again", "w0#1", 4, 4.5)
		}, nil},
		"an iteration again, another having let go": {func(s *tale) {
			s.LetGo = []window{{Kind: "let go", Node: "w1", From: at(2.3), To: at(4.3)}}
			s.beats("again", "w0#1", 4, 4.5)
		}, []string{"loop twice"}},
		"two iterations at once": {func(s *tale) { s.beats("again", "w1#1", 4.015, 4.015) }, []string{"overlap"}},
		"the loop rests":         {func(s *tale) { s.beats("late", "w1#1", 12, 12) }, []string{"late loop"}},
		"an iteration under another's key": {func(s *tale) {
			chore(s, "c1", 1, 1)
			chore(s, "c2", 2, 2)
			s.Events[len(s.Events)-1].Key = "c1"
			s.note(triggers, choreName, "", 0.9, 1)
			s.note(triggers, choreName, "", 1.9, 2)
		}, []string{"key"}},
		"a trigger": {func(s *tale) { s.note(triggers, choreName, "", 5, 5.1); chore(s, "c1", 5, 5.2) }, nil},
		"a trigger of which nothing comes": {func(s *tale) {
			s.note(triggers, choreName, "", 5, 5.1)
		}, []string{"late trigger"}},
		"a trigger of which nothing is seen": {func(s *tale) {
			s.window("cut", "w0", 4.9, 5.2)
			s.Windows[len(s.Windows)-1].Far = "witness"
			s.note(triggers, choreName, "", 5, 5.1)
		}, nil},
		"a trigger, and two iterations": {func(s *tale) {
			s.note(triggers, choreName, "", 5, 5.1)
			chore(s, "c1", 5, 5.2)
			chore(s, "c2", 6, 6.2)
		}, []string{"trigger"}},
		"an iteration begun anew after a crash": {func(s *tale) {
			s.window("kill", "w0", 5.3, 6)
			s.note(triggers, choreName, "", 5, 5.1)
			chore(s, "c1", 5, 5.2)
			chore(s, "c2", 5, 6.2)
			s.Events[len(s.Events)-1].Key = "c1"
		}, nil},
		"a trigger that has failed may have come": {func(s *tale) {
			s.note(triggers, choreName, "failed: no connection", 5, 5.1)
			chore(s, "c1", 5, 5.2)
		}, nil},
		"a trigger of a paused loop": {func(s *tale) {
			s.note(triggers, choreName, "of a loop that is paused", 5, 5.1)
			chore(s, "c1", 5, 5.2)
		}, []string{"trigger"}},
	}.judge(t)
}
