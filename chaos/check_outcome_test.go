package main

import (
	"slices"
	"strings"
	"testing"
)

// What each verb promises, and a run that it was not kept to.
func TestCheckVerbs(t *testing.T) {
	broken := func(rule string, tell func(*tale)) struct {
		tell func(*tale)
		want []string
	} {
		want := strings.Fields(rule)
		for i := range want {
			want[i] = strings.ReplaceAll(want[i], "_", " ")
		}
		return struct {
			tell func(*tale)
			want []string
		}{tell, want}
	}
	// canceled is a run with a victim.
	canceled := func(s *tale) *victim {
		o := s.tells("cancel")
		id := o.Job.ID + "/0.0.cancel"
		for i, name := range []string{"victim", "clean", "gone"} {
			s.does(name, name, "", "w1#1", 0.01+float64(i)/100, 0.015+float64(i)/100)
			s.Events[len(s.Events)-1].Job, s.Events[len(s.Events)-2].Job = id, id
		}
		o.Victims = []victim{{Job: id, Fate: "cancel", State: "canceled", Began: "victim", Clean: "clean", Gone: "gone"}}
		return &o.Victims[0]
	}
	// streamed is a run with a stream, in three pieces, the first of an attempt before.
	streamed := func(s *tale) *outcome {
		o := s.tells("stream")
		text := whole(o.Story.Calls[0].Call)
		o.Stream = []chunk{{1, "1", "0.0.stream", 1, word("aaaaaaaaaaaa", 0)}, {3, "1", "0.0.stream", 2, text[:30]}, {4, "1", "0.0.stream", 2, text[30:]}}
		o.Live = slices.Clone(o.Stream)
		return o
	}
	// ordered is a run that was started in a transaction.
	ordered := func(s *tale) *outcome {
		o := s.tells("plain")
		o.Ordered, o.Orders, o.Exists = true, 1, true
		return o
	}
	txstep := func(s *tale) *outcome {
		o := s.tells("txstep")
		s.Ledger = []entry{{o.Job.ID + "/0.0.txstep", o.Story.Calls[0].Call}}
		return o
	}
	tales{
		"verbs": broken("", func(s *tale) {
			s.tells("plain", "hook", "completeon", "event", "all", "saga", "job", "retry", "complete", "terminate", "deadline")
		}),
		"a delivery comes twice":               broken("signal", func(s *tale) { o := s.tells("hook"); o.Story.Got = append(o.Story.Got, o.Story.Got...) }),
		"an event does not come":               broken("signal", func(s *tale) { s.tells("event").Story.Got = nil }),
		"a wait is completed by another value": broken("signal", func(s *tale) { s.tells("complete").Story.Got[0] = "x" }),
		"what is published is not there":       broken("value", func(s *tale) { s.tells("publish").Latest = "x" }),
		"what is published is there":           broken("", func(s *tale) { o := s.tells("publish"); o.Latest = o.Story.last() }),

		"a run begins before its time": broken("early_timer", func(s *tale) { s.Outcomes[0].After = at(3) }),
		"a run is in no list":          broken("list", func(s *tale) { s.Listed = nil }),
		"a run is in the list twice":   broken("list", func(s *tale) { s.Listed = append(s.Listed, "r") }),

		"a place has two results":  broken("history", func(s *tale) { s.tells("plain").Records = []record{{1, "1", "step"}, {2, "1", "step"}} }),
		"records are out of order": broken("history", func(s *tale) { s.tells("plain").Records = []record{{2, "1", "step"}, {1, "2", "step"}} }),
		"a retried step has another result": broken("", func(s *tale) {
			s.tells("plain").Records = []record{{1, "1", "step"}, {2, "", "retried"}, {3, "1", "step"}}
		}),

		"a cancel":                   broken("", func(s *tale) { canceled(s) }),
		"a cancel that fails":        broken("fate", func(s *tale) { canceled(s).State = "failed" }),
		"no clean-up":                broken("fate", func(s *tale) { canceled(s).Clean = "" }),
		"half a clean-up":            broken("fate", func(s *tale) { canceled(s).Gone = "" }),
		"a clean-up that nobody saw": broken("kept", func(s *tale) { canceled(s).Clean = "x" }),
		"a victim that is not there": broken("fate", func(s *tale) { canceled(s).Error = "not found" }),
		"a clean-up runs again": broken("rerun kept", func(s *tale) {
			v := canceled(s)
			s.does("clean", "again", "", "w1#1", 1, 1.1).Job = v.Job
			s.does("gone", "other", "clean", "w1#1", 0.9, 0.95).Job = v.Job
			v.Gone = "other"
			v.Began = "nobody"
		}),
		"a clean-up of who is terminated": broken("fate", func(s *tale) {
			v := canceled(s)
			v.Fate, v.State, v.Clean, v.Gone = "terminate", "terminated", "", ""
		}),
		"a victim tells another end": broken("signal", func(s *tale) { canceled(s); s.Outcomes[0].Story.Got = []string{"j/0.0.cancel is succeeded"} }),

		"a stream":                    broken("", func(s *tale) { streamed(s) }),
		"a stream with a hole":        broken("stream", func(s *tale) { o := streamed(s); o.Stream = slices.Delete(o.Stream, 1, 2); o.Live = o.Stream }),
		"a stream without its end":    broken("stream", func(s *tale) { o := streamed(s); o.Stream = o.Stream[:2]; o.Live = o.Stream }),
		"a stream of two calls":       broken("stream", func(s *tale) { o := streamed(s); o.Stream[0].Attempt = 2; o.Live = slices.Clone(o.Stream) }),
		"a stream out of order":       broken("stream", func(s *tale) { o := streamed(s); o.Stream[2].Seq = 2; o.Live = slices.Clone(o.Stream) }),
		"a piece is read twice":       broken("stream", func(s *tale) { o := streamed(s); o.Live = append(o.Live, o.Live[2]) }),
		"a piece is not read":         broken("stream", func(s *tale) { o := streamed(s); o.Live = o.Live[1:] }),
		"a stream of a call not kept": broken("stream", func(s *tale) { o := streamed(s); o.Stream = o.Stream[:1]; o.Live = o.Stream }),

		"an order":              broken("", func(s *tale) { ordered(s) }),
		"an order without run":  broken("transaction", func(s *tale) { ordered(s).Exists = false }),
		"a run without order":   broken("transaction", func(s *tale) { ordered(s).Orders = 0 }),
		"a dropped order":       broken("", func(s *tale) { o := ordered(s); o.Run, o.Orders, o.Exists = "", 0, false }),
		"a dropped order's run": broken("transaction", func(s *tale) { o := ordered(s); o.Run, o.Orders = "", 0 }),

		"an entry":                broken("", func(s *tale) { txstep(s) }),
		"an entry that is lost":   broken("ledger", func(s *tale) { txstep(s); s.Ledger = nil }),
		"an entry made twice":     broken("ledger", func(s *tale) { txstep(s); s.Ledger = append(s.Ledger, s.Ledger...) }),
		"an entry of nobody":      broken("ledger", func(s *tale) { txstep(s); s.Ledger = append(s.Ledger, entry{"j/0.0.txstep", "x"}) }),
		"an entry of another job": broken("", func(s *tale) { txstep(s); s.Ledger = append(s.Ledger, entry{"who/0.0.txstep", "x"}) }),

		"a replay draws something else": broken("replay", func(s *tale) {
			s.does("0.9.drawn", "x", "", "w0#1", 0.1, 0.2).Drawn = "1"
			s.does("0.9.drawn", "y", "", "w1#1", 0.3, 0.4).Drawn = "2"
		}),
		"an attempt has another key": broken("key", func(s *tale) {
			s.does("0.9.x", "x", "", "w0#1", 0.1, 0.2).Key = "1"
			s.does("0.9.x", "y", "", "w1#1", 0.3, 0.4).Key = "2"
		}),
		"two steps have one key": broken("key", func(s *tale) {
			s.does("0.8.x", "x", "", "w0#1", 0.1, 0.2).Key = "1"
			s.does("0.9.x", "y", "", "w1#1", 0.3, 0.4).Key = "1"
		}),
		"two attempts at once": broken("overlap", func(s *tale) {
			s.does("0.9.x", "x", "", "w0#1", 0.1, 0.4)
			s.does("0.9.x", "y", "", "w1#1", 0.3, 0.5)
		}),

		"a paused run": broken("", func(s *tale) {
			s.note(pauses, "j", "p", 2.5, 2.5)
			s.note(resumes, "j", "p", 3.9, 3.9)
		}),
		"a paused run ends what it has begun": broken("", func(s *tale) {
			s.note(pauses, "j", "p", 3.6, 3.6)
			s.note(resumes, "j", "p", 4.9, 4.9)
		}),
		"a paused run makes one more step": broken("", func(s *tale) {
			s.note(pauses, "j", "p", 3.2, 3.2)
			s.note(resumes, "j", "p", 4.9, 4.9)
		}),
		"a paused run goes on": broken("pause", func(s *tale) {
			s.note(pauses, "j", "p", 3.2, 3.2)
			s.note(resumes, "j", "p", 5.9, 5.9)
		}),

		"polls that share":            broken("", func(s *tale) { s.looks("w0#1", 1); s.looks("w1#1", 1.21) }),
		"polls that ask each":         broken("share", func(s *tale) { s.looks("w0#1", 1); s.looks("w1#1", 1.1) }),
		"polls that ask each in need": broken("", func(s *tale) { s.window("cut", "w1", 0.9, 1); s.looks("w0#1", 1); s.looks("w1#1", 1.1) }),
	}.judge(t)
}
