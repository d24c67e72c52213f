package bide_test

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/bide-dev/bide"
)

// TestPollBadInput protects against polls that make no sense: the error names the
// field, no check is made, and a replay says the same.
func TestPollBadInput(t *testing.T) {
	none := bide.NoTimeout{}
	for name, c := range map[string]struct {
		field string
		opts  []bide.PollOption
	}{
		"no bound":                         {"Timeout", nil},
		"a bound of any number":            {"Timeout", []bide.PollOption{bide.MaxAttempts(0), bide.MaxConsecutiveErrors(3)}},
		"a stall is no bound":              {"Timeout", []bide.PollOption{bide.StallTimeout(time.Hour)}},
		"an interval of zero":              {"interval", []bide.PollOption{bide.Every(0), none}},
		"a negative interval":              {"interval", []bide.PollOption{bide.Every(-time.Second), none}},
		"an interval below the floor":      {"interval", []bide.PollOption{bide.Every(9 * time.Millisecond), none}},
		"a least interval below the floor": {"minimum interval", []bide.PollOption{bide.MinInterval(time.Millisecond), none}},
		"a negative least interval":        {"minimum interval", []bide.PollOption{bide.MinInterval(-1), none}},
		"a coefficient of NaN":             {"Exponential.Coefficient", []bide.PollOption{bide.Exponential{Coefficient: math.NaN()}, none}},
		"a coefficient below 1":            {"Exponential.Coefficient", []bide.PollOption{bide.Exponential{Coefficient: 0.99}, none}},
		"a negative coefficient":           {"Exponential.Coefficient", []bide.PollOption{bide.Exponential{Coefficient: -2}, none}},
		"a maximum below the interval":     {"Exponential.Max", []bide.PollOption{bide.Exponential{Interval: time.Minute, Max: time.Second}, none}},
		"a negative maximum":               {"Exponential.Max", []bide.PollOption{bide.Exponential{Max: -1}, none}},
		"a first interval below the floor": {"Exponential.Interval", []bide.PollOption{bide.Exponential{Interval: 1}, none}},
		"a negative first interval":        {"Exponential.Interval", []bide.PollOption{bide.Exponential{Interval: -time.Second}, none}},
		"a negative share":                 {"Elapsed.Share", []bide.PollOption{bide.Elapsed{Share: -0.1}, none}},
		"a share of NaN":                   {"Elapsed.Share", []bide.PollOption{bide.Elapsed{Share: math.NaN()}, none}},
		"an infinite share":                {"Elapsed.Share", []bide.PollOption{bide.Elapsed{Share: math.Inf(1)}, none}},
		"Elapsed with Max below Min":       {"Elapsed.Max", []bide.PollOption{bide.Elapsed{Min: time.Minute, Max: time.Second}, none}},
		"Elapsed with Min below the floor": {"Elapsed.Min", []bide.PollOption{bide.Elapsed{Min: 1}, none}},
		"ETA with Max below Min":           {"ETA.Max", []bide.PollOption{bide.ETA{Min: time.Minute, Max: time.Second}, none}},
		"ETA with a negative Min":          {"ETA.Min", []bide.PollOption{bide.ETA{Min: -1}, none}},
		"a long poll above a minute":       {"LongPoll.Hold", []bide.PollOption{bide.LongPoll(time.Minute + 1), none}},
		"a long poll below a second":       {"LongPoll.Hold", []bide.PollOption{bide.LongPoll(time.Second - 1), none}},
		"a long poll of zero":              {"LongPoll.Hold", []bide.PollOption{bide.LongPoll(0), none}},
		"a negative long poll":             {"LongPoll.Hold", []bide.PollOption{bide.LongPoll(-time.Second), none}},
		"a long poll, its strategy bad":    {"interval", []bide.PollOption{bide.LongPoll(time.Second), bide.Every(0), none}},
		"learned from zero":                {"Learned", []bide.PollOption{bide.Learned(0), none}},
		"learned from less than nothing":   {"Learned", []bide.PollOption{bide.Learned(-time.Second), none}},
		"a share of nothing":               {"Share", []bide.PollOption{bide.Share(""), none}},
		"a timeout of zero":                {"Timeout", []bide.PollOption{bide.Timeout(0)}},
		"a negative timeout":               {"Timeout", []bide.PollOption{bide.Timeout(-time.Second), bide.MaxAttempts(1)}},
		"negative attempts":                {"MaxAttempts", []bide.PollOption{bide.MaxAttempts(-1), none}},
		"negative errors":                  {"MaxConsecutiveErrors", []bide.PollOption{bide.MaxConsecutiveErrors(-1), none}},
		"a negative delay":                 {"InitialDelay", []bide.PollOption{bide.InitialDelay(-1), none}},
		"an attempt timeout of zero":       {"AttemptTimeout", []bide.PollOption{bide.AttemptTimeout(0), none}},
		"a negative attempt timeout":       {"AttemptTimeout", []bide.PollOption{bide.AttemptTimeout(-1), bide.LongPoll(time.Second), none}},
		"a stall timeout of zero":          {"StallTimeout", []bide.PollOption{bide.StallTimeout(0), none}},
		"a negative stall timeout":         {"StallTimeout", []bide.PollOption{bide.StallTimeout(-1), none}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(e *env) {
				turns := 0
				w := bide.Define("bad", func(ctx bide.Context, _ struct{}) (struct{}, error) {
					turns++
					_, err := bide.Poll(ctx, "job", func(context.Context) (int, error) { e.Error("a check was made"); return 1, nil },
						func(int) bool { return true }, c.opts...)
					x, ok := errors.AsType[*bide.InvalidError](err)
					if !ok || x.Field != c.field || x.Reason == "" || bide.Code(err) != "invalid" {
						e.Errorf("turn %d: %v, want the field %s", turns, err, c.field)
						return struct{}{}, err
					}
					return struct{}{}, bide.Sleep(ctx, time.Hour)
				})
				e.work(w)
				h := start(e, w, struct{}{})
				time.Sleep(time.Minute)
				e.restart(w)
				if _, err := result(e, h); err != nil || turns != 2 {
					e.Errorf("%v after %d turns", err, turns)
				}
				e.wantScript(h.ID(), "1 poll job !bide: "+c.field+": "+wantErr[*bide.InvalidError](e, e.history(h.ID())[0].Error.Err()).Reason, "2 sleep")
			})
		})
	}
	inBubble(t, func(e *env) {
		w := bide.Define("nameless", func(ctx bide.Context, _ struct{}) (int, error) {
			return bide.Poll(ctx, "", func(context.Context) (int, error) { e.Error("a check was made"); return 1, nil }, func(int) bool { return true }, none)
		})
		_, err := run(e, w, struct{}{})
		if x := wantErr[*bide.InvalidError](e, err); x.Field != "poll name" {
			e.Errorf("%+v", x)
		}
	})
	// A share of 0 is the default, as with every field that is left out.
	at, _, _, err := polled(t, doneAt(4), bide.Elapsed{}, none, bide.Exact{})
	if err != nil || len(at) != 4 {
		t.Errorf("checks at %v, %v", at, err)
	}
	if err := bide.Observe(t.Context(), bide.Observation{}); bide.Code(err) != "misuse" {
		t.Errorf("Observe outside a check: %v", err)
	}
	if o := bide.LastObservation(t.Context()); o != (bide.Observation{}) {
		t.Errorf("LastObservation outside a check: %+v", o)
	}
}
