package bide

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// Describe says the wait in a sentence, as it stands at now and in its time zone:
//
//	asleep until 09:00
//	poll deep-research, attempt 14, next in 7 s, last: {"state":"running"} 62 %
//	waits for signal approval since 2 d, gives up in 22 h
//	step charge, try 3 in 12 s, last error: 503 Service Unavailable
//
// It is one line, but a service may have had a say in it: escape it as any text
// from outside.
func (w Wait) Describe(now time.Time) string {
	var parts []string
	add := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	switch w.Kind {
	case KindSleep:
		add("asleep until %s", moment(w.Until, now))
		return parts[0]
	case KindReceive, KindWebhook, KindChild:
		add("waits for %s %s%s", w.Kind, w.Name, since(w.Since, now))
	case KindQueue:
		add("waits for a worker of queue %s%s", w.Name, since(w.Since, now))
	case KindPause:
		return "paused" + since(w.Since, now)
	case KindPoll:
		add("poll %s", w.Name)
		if w.Attempt > 0 {
			add("attempt %d", w.Attempt)
		}
		add("%s", next("next in ", "checks now", w.NextAt, now))
	case KindLoop:
		add("loop %s", w.Name)
		add("%s", w.round(now))
		if s := w.Loop; s != nil && s.Failures > 0 {
			add("interval %s after %s", span(s.Effective), times(s.Failures, "failure"))
		}
	case KindRetry:
		add("step %s", w.Name)
		switch {
		case w.NextAt.IsZero():
			add("try %d is under way", w.Attempt+1)
		default:
			add("%s", next(fmt.Sprintf("try %d in ", w.Attempt+1), fmt.Sprintf("try %d now", w.Attempt+1), w.NextAt, now))
		}
	case KindStuck:
		add("stuck in the code of %s%s", w.Name, since(w.Since, now))
		add("%s", next("tried again in ", "tried again now", w.NextAt, now))
	default:
		add("waits for %s", strings.TrimSpace(w.Kind.String()+" "+w.Name))
	}
	if !w.Until.IsZero() {
		add("%s", next("gives up in ", "gives up now", w.Until, now))
	}
	return strings.Join(append(parts, w.last()...), ", ")
}

// round says when a loop's next iteration comes.
func (w Wait) round(now time.Time) string {
	if s := w.Loop; s != nil && !s.InFlight.IsZero() {
		return "at work" + since(s.InFlight, now)
	}
	return next("next in ", "runs now", w.NextAt, now)
}

// last says what was seen last: the error, while it stands, else the value.
func (w Wait) last() []string {
	failing := w.LastError != nil && (w.Kind != KindPoll || w.Streak > 0)
	if l := w.Loop; l != nil {
		failing = failing && l.Failures > 0
	}
	var said string
	switch {
	case failing:
		return []string{"last error: " + oneLine(w.LastError.Message, describedError)}
	case len(w.LastValue) > 0:
		said = oneLine(compact(w.LastValue), describedValue)
	}
	if w.Poll != nil && !w.Poll.PercentAt.IsZero() {
		said = strings.TrimSpace(fmt.Sprintf("%s %.0f %%", said, w.Poll.Percent))
	}
	if said == "" {
		return nil
	}
	return []string{"last: " + said}
}

// The most bytes of a value and an error that stand in a sentence.
const (
	describedValue = 80
	describedError = 200
)

func compact(value json.RawMessage) string {
	var b bytes.Buffer
	if json.Compact(&b, value) != nil {
		return string(value)
	}
	return b.String()
}

func oneLine(text string, limit int) string {
	return shorten(strings.Join(strings.Fields(text), " "), limit)
}

func times(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func since(t, now time.Time) string {
	if t.IsZero() {
		return ""
	}
	return " since " + span(now.Sub(t))
}

// next says how long it is to a time that has not come, or that it is now.
func next(ahead, due string, t, now time.Time) string {
	if d := t.Sub(now); d > 0 {
		return ahead + span(d)
	}
	return due
}

// span is a duration as people say it, in its one or two leading units.
func span(d time.Duration) string {
	const day = 24 * time.Hour
	two := func(d, unit, part time.Duration, name, partName string) string {
		s := fmt.Sprintf("%d %s", d/unit, name)
		if rest := d % unit / part; rest > 0 && d < 10*unit {
			s += fmt.Sprintf(" %d %s", rest, partName)
		}
		return s
	}
	switch d = max(d, 0); {
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%d s", d/time.Second)
	case d < time.Hour:
		return two(d, time.Minute, time.Second, "min", "s")
	case d < day:
		return two(d, time.Hour, time.Minute, "h", "min")
	}
	return two(d, day, time.Hour, "d", "h")
}

// moment is a time as people say it, the more exact the nearer it is.
func moment(t, now time.Time) string {
	if t.IsZero() {
		return "further notice"
	}
	t = t.In(now.Location())
	switch d := t.Sub(now); {
	case d < 10*time.Minute && d > -10*time.Minute:
		return t.Format(time.TimeOnly)
	case t.Format(time.DateOnly) == now.Format(time.DateOnly):
		return t.Format("15:04")
	case d > 0 && d < 6*24*time.Hour:
		return t.Format("Monday 15:04")
	}
	return t.Format("2006-01-02 15:04")
}
