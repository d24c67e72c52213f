package wait

import (
	"math"
	"time"
)

// State is what a wait has seen so far: all that its next pause goes by. It is
// small and survives JSON, so that another process can go on with it.
type State struct {
	Start   time.Time `json:"start"`
	Pending int       `json:"pending,omitempty"` // checks that said "not yet"
	// Errors in a row, and refusals for asking too often: each grows the
	// back-off, only the first are held against the check.
	Errors    int `json:"errors,omitempty"`
	Throttled int `json:"throttled,omitempty"`

	ETA       time.Time `json:"eta,omitzero"`
	Percent   float64   `json:"percent,omitempty"`   // the highest so far
	PercentAt time.Time `json:"percent_at,omitzero"` // when it last rose
	Rate      float64   `json:"rate,omitempty"`      // percent a second, smoothed
	Rises     int       `json:"rises,omitempty"`     // of the percent
	Unheld    int       `json:"unheld,omitempty"`    // answers in a row that a long poll was not held for
	// Sticky is the server's own poll interval, until it names another.
	Sticky  time.Duration `json:"sticky_ns,omitempty"`
	HurryTo time.Time     `json:"hurry_until,omitzero"` // until then checks come as close as allowed
}

// Saw counts a check that said "not yet" and took so long; hold is how long a
// long poll asked the server to hold it, 0 for none.
func (s *State) Saw(took, hold time.Duration) {
	s.Pending++
	s.Errors, s.Throttled = 0, 0
	if hold <= 0 {
		return
	}
	switch {
	case took >= times(hold, 0.8):
		s.Unheld = 0
	case took < times(hold, 0.2):
		s.Unheld++
	case s.Unheld < unheldTwice:
		s.Unheld = 0 // not twice running
	}
}

// Progress notes how far the thing is, in percent. It never goes back.
func (s *State) Progress(percent float64, now time.Time) {
	if math.IsNaN(percent) || percent <= s.Percent && s.Rises > 0 {
		return
	}
	percent = min(max(percent, 0), 100)
	if !s.PercentAt.IsZero() && percent > s.Percent {
		if dt := since(s.PercentAt, now).Seconds(); dt > 0 {
			rate := (percent - s.Percent) / dt
			if s.Rate > 0 {
				rate = 0.3*rate + 0.7*s.Rate
			}
			s.Rate = rate
		}
	}
	if percent > s.Percent || s.PercentAt.IsZero() {
		s.PercentAt = now
	}
	if percent > s.Percent {
		s.Rises++
	}
	s.Percent = percent
}

// Remaining estimates the time that is left, below 0 when overdue: by the ETA
// that was named, else by the rate of progress, once that has risen twice and
// past 5 %. It reports false when neither says anything.
func (s *State) Remaining(now time.Time) (time.Duration, bool) {
	switch {
	case !s.ETA.IsZero():
		return s.ETA.Sub(now), true
	case s.Percent >= 5 && s.Rises >= 2 && s.Rate > 0:
		left := times(time.Second, (100-s.Percent)/s.Rate)
		return left - since(s.PercentAt, now), true
	}
	return 0, false
}
