package main

import (
	"fmt"
	"testing"
	"time"
)

// What is late, and what excuses it.
func TestCheckTime(t *testing.T) {
	tales{
		"a timer is early":         {func(s *tale) { s.does("t", "t", "", "w0#1", 6, 6.1).Due = at(7) }, []string{"early timer"}},
		"a timer is late":          {func(s *tale) { s.does("t", "t", "", "w0#1", 9, 9.1).Due = at(6) }, []string{"late timer"}},
		"a timer is a little late": {func(s *tale) { s.does("t", "t", "", "w0#1", 9, 9.1).Due = at(7.5) }, nil},
		"a timer is late by a fault": {func(s *tale) {
			s.window("cut", "w0", 6.5, 8)
			s.does("t", "t", "", "w0#1", 9, 9.1).Due = at(6)
		}, nil},
		"a timer is late though a fault is healed": {func(s *tale) {
			s.window("cut", "w0", 3.5, 6.5)
			s.does("t", "t", "", "w0#1", 9, 9.1).Due = at(6)
		}, []string{"late timer"}},
		"a timer is late on a machine that may be": {func(s *tale) {
			s.Late = 5 * time.Second
			s.does("t", "t", "", "w0#1", 9, 9.1).Due = at(6)
		}, nil},
		"a timer is late by a lease": {func(s *tale) {
			s.window("kill", "w0", 6, 6.1)
			s.does("t", "t", "", "w0#1", 9, 9.1).Due = at(6)
		}, nil},
		"a skewed clock is no excuse": {func(s *tale) {
			s.window("skew", "w0", 6, 9)
			s.does("t", "t", "", "w0#1", 9, 9.1).Due = at(6)
		}, []string{"late timer"}},
		"a timer is late though the lease has lapsed": {func(s *tale) {
			s.window("kill", "w0", 6, 6.1)
			s.does("t", "t", "", "w0#1", 11.5, 11.6).Due = at(6)
		}, []string{"late timer"}},
		"a cut from the witness costs a call": {func(s *tale) {
			s.window("cut", "w0", 6, 6.1)
			s.Windows[0].Far = "witness"
			s.does("t", "t", "", "w0#1", 9, 9.1).Due = at(6)
		}, nil},
		"a cut from the witness takes no lease": {func(s *tale) {
			s.window("cut", "w0", 6, 6.1)
			s.Windows[0].Far = "witness"
			s.does("t", "t", "", "w0#1", 10, 10.1).Due = at(6)
		}, []string{"late timer"}},
		"the way of a patron is no excuse": {func(s *tale) {
			s.window("cut", "patron", 6, 9)
			s.does("t", "t", "", "w0#1", 9, 9.1).Due = at(6)
		}, []string{"late timer"}},
		"a worker does not come back": {func(s *tale) {
			s.window("cut", "w1", 5, 6)
			for i := range idle + 10 {
				s.does(fmt.Sprint(i), fmt.Sprint(i), "", "w0#1", 20+float64(i), 20.5+float64(i))
			}
		}, []string{"idle"}},
		"a worker elsewhere notices late that it is not heard": {func(s *tale) {
			s.does("first", "first", "", distant+"#1", 4.5, 4.6)
			s.window("cut", distant, 5, 6)
			s.Windows[0].Fault = "cut w2-s0 lose at 5s for 1s"
			for i := range idle + 10 {
				s.does(fmt.Sprint(i), fmt.Sprint(i), "", "w0#1", 14.1+float64(i)/200, 14.1+float64(i)/200)
			}
			s.does("back", "back", "", distant+"#1", 15.5, 15.6)
			s.does("other", "other", "", "w1#1", 12, 12.1)
		}, nil},
		"a worker that nothing is wrong with": {func(s *tale) {
			s.does("first", "first", "", distant+"#1", 4.5, 4.6)
			s.window("cut", distant, 5, 6)
			for i := range idle + 10 {
				s.does(fmt.Sprint(i), fmt.Sprint(i), "", "w0#1", 14.1+float64(i)/200, 14.1+float64(i)/200)
			}
			s.does("back", "back", "", distant+"#1", 15.5, 15.6)
			s.does("other", "other", "", "w1#1", 12, 12.1)
		}, []string{"idle"}},
		"a worker comes back late": {func(s *tale) {
			for i := range idle + 10 {
				s.does(fmt.Sprint(i), fmt.Sprint(i), "", "w0#1", 20+float64(i)/10, 20.05+float64(i)/10)
			}
			s.does("back", "back", "", "w1#1", 60, 60.1)
		}, []string{"idle"}},
		"a worker is away": {func(s *tale) {
			for i := range idle + 10 {
				s.does(fmt.Sprint(i), fmt.Sprint(i), "", "w0#1", 20+float64(i), 20.5+float64(i))
			}
			s.window("kill", "w1", 220, 230)
		}, nil},
		"a zombie": {func(s *tale) {
			s.window("stop", "w2", 2, 5.9)
			s.does("0.0.plain", "a2", "", "w2#1", 6, 6.1)
			s.beats("again", "w2#1", 3, 6.2)
		}, nil},
		"a zombie that goes on": {func(s *tale) {
			s.window("stop", "w2", 2, 5)
			s.does("0.0.plain", "a2", "", "w2#1", 6, 6.1)
		}, []string{"rerun"}},
		"a zombie that begins two things": {func(s *tale) {
			s.window("stop", "w2", 2, 5)
			s.does("0.8.x", "x", "", "w2#1", 5.2, 5.22)
			s.does("0.0.plain", "a2", "", "w2#1", 5.3, 5.4)
		}, []string{"rerun"}},
		"a zombie on a machine that stalls": {func(s *tale) {
			s.window("stop", "w2", 2, 6)
			s.Stalls = []window{{Kind: "stall", From: at(6.1), To: at(7)}}
			s.does("0.0.plain", "a2", "", "w2#1", 7.1, 7.2)
		}, nil},
		"a step under way while its process is stopped": {func(s *tale) {
			s.window("stop", "w2", 4.4, 6)
			s.does("0.0.plain", "a2", "", "w2#1", 4.3, 6.1)
		}, []string{"rerun"}},
	}.judge(t)
}

// The longest calm between two moments, with faults and stalls in between.
func TestCalm(t *testing.T) {
	s := &tale{evidence{Lease: 2 * time.Second}}
	s.window("cut", "w0", 10, 13)
	s.window("crash", "db", 12, 14)
	s.Stalls = []window{{Kind: "stall", From: at(20), To: at(21)}}
	c := &checker{evidence: s.evidence}
	for _, x := range []struct{ from, to, want float64 }{{0, 5, 5}, {9, 15, 1}, {9, 19, 4}, {11, 13.5, 0}, {14, 22, 5}, {19, 25, 4}, {5, 4, 0}} {
		if got := c.calm(at(x.from), at(x.to)); got != time.Duration(x.want*float64(time.Second)) {
			t.Errorf("from %v to %v: %v of calm, want %v s", x.from, x.to, got, x.want)
		}
	}
}
