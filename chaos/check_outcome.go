package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// outcome judges how a run ended: none is lost, each tells the whole story, with
// every signal once.
func (c *checker) outcome(o *outcome) {
	id := o.Job.ID
	bad := func(rule, format string, args ...any) { c.report(rule, id, o.Started, c.jobs[id], format, args...) }
	if o.Ordered && o.Exists != (o.Orders > 0) {
		bad("transaction", "its order has %d rows, and that there is a run is %v", o.Orders, o.Exists)
	}
	switch {
	case o.Run == "" && o.Ordered: // it was thought better of
		return
	case o.Run == "":
		bad("start", "no start was ever acknowledged")
		return
	case o.State != "succeeded" || o.Error != "":
		bad("lost run", "run %s is %s, %s\n%s", o.Run, o.State, o.Error, o.History)
		return
	}
	if calls := c.jobs[id]; len(calls) > 0 && calls[0].Sent.Before(o.After.Add(-early)) {
		bad("early timer", "it began at %v, and was not to before %v", clock(calls[0].Sent), clock(o.After))
	}
	if o.Unheard {
		bad("result", "run %s has ended, and who waits for its result is not told", o.Run)
	}
	c.whole[id] = true
	c.keep(o.Story.Calls...)
	var want, got []string
	latest, results := "", map[string]string{}
	for _, k := range o.Story.Calls {
		got, results[k.Place] = append(got, k.Place), k.Call
		if k.Call == "" && !strings.HasSuffix(k.Place, ".once") && !strings.HasSuffix(k.Place, ".drop") {
			bad("story", "step %s has no result", k.Place)
		}
	}
	last := fmt.Sprintf("%d.", len(o.Job.Rounds)-1)
	o.Job.each(func(place string, v verb) {
		want = append(want, v.steps(place)...)
		if verbOf(place) == "publish" && strings.HasPrefix(place, last) {
			latest = results[place]
		}
	})
	if !slices.Equal(got, want) {
		bad("story", "the run has taken %v, not %v", got, want)
	}
	heard, sent := slices.Sorted(slices.Values(o.Story.Got)), slices.Sorted(slices.Values(gets(o.Job)))
	if !slices.Equal(heard, sent) {
		bad("signal", "it was sent %v, each once, and has received %v", sent, heard)
	}
	if latest != "" && o.Latest != latest {
		bad("value", "it has published %s last, and %q is there", latest, o.Latest)
	}
	c.history(o)
	for _, v := range o.Victims {
		c.victim(o, v)
	}
	if streams(o.Job) {
		c.stream(o, results)
	}
}

func (c *checker) keep(calls ...call) {
	for _, k := range calls {
		if k.Call != "" {
			c.kept[k.Call] = k
		}
	}
}

// history: each place has one result.
func (c *checker) history(o *outcome) {
	seen := map[string]bool{}
	seq := int64(0)
	for _, r := range o.Records {
		switch {
		case r.Seq <= seq:
			c.report("history", o.Job.ID, o.Started, nil, "record %d comes after record %d", r.Seq, seq)
		case r.Kind == "retried" || r.Kind == "continued":
			clear(seen)
		case r.Kind == "step" && seen[r.Path]:
			c.report("history", o.Job.ID, o.Started, c.jobs[o.Job.ID], "step %s has two results", r.Path)
		case r.Kind == "step":
			seen[r.Path] = true
		}
		seq = r.Seq
	}
}

// victim: who is ended from outside ends so, and cleans up once if it may.
func (c *checker) victim(o *outcome, v victim) {
	bad := func(format string, args ...any) { c.report("fate", v.Job, o.Started, c.jobs[v.Job], format, args...) }
	if want := fates[v.Fate].String(); v.State != want || v.Error != "" {
		bad("it is %s, not %s: %s", v.State, want, v.Error)
	}
	c.keep(call{"victim", v.Began}, call{"clean", v.Clean}, call{"gone", v.Gone})
	cleaned := len(c.places[v.Job+" clean"]) > 0
	switch {
	case v.Fate != "cancel" && cleaned:
		bad("it has cleaned up")
	case v.Fate == "cancel" && (v.Clean == "" || v.Gone == ""):
		bad("it has not cleaned up, but %q and %q", v.Clean, v.Gone)
	}
}

// stream: what each attempt has streamed is whole and in order, that of the kept one
// to its end; who has followed it has seen the same, each piece once.
func (c *checker) stream(o *outcome, results map[string]string) {
	bad := func(format string, args ...any) {
		c.report("stream", o.Job.ID, o.Started, c.jobs[o.Job.ID], format, args...)
	}
	if !slices.Equal(o.Stream, o.Live) {
		bad("who has followed it has seen %v, and there is %v", o.Live, o.Stream)
	}
	texts := map[string]string{} // the newest attempt's, by place
	for i, k := range o.Stream {
		fresh := true
		if i > 0 {
			before := o.Stream[i-1]
			if fresh = before.Path != k.Path || before.Attempt != k.Attempt; k.Seq <= before.Seq {
				bad("piece %d comes after piece %d", k.Seq, before.Seq)
			}
		}
		if fresh {
			texts[k.Place] = ""
		}
		texts[k.Place] += k.Text
		if text := texts[k.Place]; len(text) >= len(nonce()) && !strings.HasPrefix(whole(text[:len(nonce())]), text) {
			bad("attempt %d of %s has streamed %q", k.Attempt, k.Place, text)
		}
	}
	o.Job.each(func(place string, _ verb) {
		if call := results[place]; verbOf(place) == "stream" && texts[place] != whole(call) {
			bad("the attempt of %s that is kept, call %s, has streamed %q", place, call, texts[place])
		}
	})
}

// shares: over all processes, what polls ask for together is asked for once in each
// period.
func (c *checker) shares() {
	for url, looks := range c.looks {
		if !strings.HasPrefix(url, sharePrefix) {
			continue
		}
		for i, b := range looks[1:] {
			a := looks[i]
			if gap := b.Sent.Sub(a.Sent); gap < period-early && !c.wrong(a.Sent.Add(-period), b.Sent) {
				c.report("share", b.Job, b.Sent, []event{a, b}, "%s was asked for by %s on %s, and %v later by %s on %s", url, a.Job, a.Node, gap.Round(time.Millisecond), b.Job, b.Node)
			}
		}
	}
}
