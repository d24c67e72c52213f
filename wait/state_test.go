package wait_test

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"github.com/bide-dev/bide/wait"
)

func TestProgress(t *testing.T) {
	var s wait.State
	at := func(sec int) time.Time { return day.Add(time.Duration(sec) * second) }
	for i, c := range []struct {
		percent float64
		sec     int
		want    float64
		rises   int
		left    time.Duration // 0: not known
	}{
		{0, 0, 0, 0, 0},
		{4, 4, 4, 1, 0},                                      // one rise
		{4, 6, 4, 1, 0},                                      // none
		{10, 10, 10, 2, 90 * second},                         // 1 a second, then 1 again
		{math.NaN(), 11, 10, 2, 89 * second},                 // no number: as if nothing was said
		{5, 12, 10, 2, 88 * second},                          // never back
		{10, 20, 10, 2, 80 * second},                         // time runs on
		{40, 20, 40, 3, time.Duration(60e9 / (0.3*3 + 0.7))}, // 3 a second, smoothed
		{math.Inf(1), 30, 100, 4, 0},
		{200, 31, 100, 4, 0},
	} {
		s.Progress(c.percent, at(c.sec))
		left, ok := s.Remaining(at(c.sec))
		if s.Percent != c.want || s.Rises != c.rises || ok != (i >= 3) || c.left > 0 && (left-c.left).Abs() > time.Millisecond {
			t.Fatalf("step %d: %v %%, %d rises, %v left (%v); want %v, %d, %v", i, s.Percent, s.Rises, left, ok, c.want, c.rises, c.left)
		}
	}
	if left, _ := s.Remaining(at(40)); left >= 0 {
		t.Errorf("all done for a while, and %v left", left)
	}
	s.ETA = at(100) // what is said goes before what is guessed
	if left, _ := s.Remaining(at(40)); left != time.Minute {
		t.Errorf("%v left until the ETA", left)
	}
}

func TestProgressOnAClockSetBack(t *testing.T) {
	var s wait.State
	s.Progress(10, day)
	s.Progress(20, day.Add(-time.Hour))
	if s.Rate != 0 {
		t.Errorf("rate %v of a time that ran backwards", s.Rate)
	}
	s.Progress(30, day.Add(10*second-time.Hour))
	if s.Rate != 1 {
		t.Errorf("rate %v, want 1", s.Rate)
	}
}

func TestSaw(t *testing.T) {
	const hold = 30 * second
	var s wait.State
	for i, c := range []struct {
		took, hold time.Duration
		want       int
	}{
		{second, 0, 0}, // no long poll
		{second, hold, 1},
		{15 * second, hold, 0}, // not twice running
		{5 * second, hold, 1},
		{5999 * time.Millisecond, hold, 2},
		{15 * second, hold, 2}, // that is no hold yet
		{second, hold, 3},
		{24 * second, hold, 0}, // that is
		{6 * second, hold, 0},
	} {
		s.Errors, s.Throttled = 3, 4
		if s.Saw(c.took, c.hold); s.Unheld != c.want || s.Pending != i+1 || s.Errors != 0 || s.Throttled != 0 {
			t.Fatalf("step %d: %+v, want Unheld %d", i, s, c.want)
		}
	}
}

func FuzzStateJSON(f *testing.F) {
	full := wait.State{Start: day, Pending: 1, Errors: 2, Throttled: 3, ETA: day, Percent: 4.5, PercentAt: day, Rate: 6, Rises: 7, Unheld: 8, Sticky: 9, HurryTo: day}
	data, err := json.Marshal(full)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data, 50.0, int64(second))
	f.Add([]byte(`{"percent":-1e308,"rate":1e308,"rises":-5,"percent_at":"0001-01-01T00:00:01Z"}`), math.Inf(-1), int64(1))
	f.Fuzz(func(t *testing.T, data []byte, percent float64, step int64) {
		var s, again wait.State
		if json.Unmarshal(data, &s) != nil {
			return
		}
		was := s.Percent
		s.Progress(percent, s.PercentAt.Add(time.Duration(step)))
		if s.Percent != was && (s.Percent < 0 || s.Percent > 100 || math.IsNaN(s.Percent)) {
			t.Fatalf("%v %% from %v", s.Percent, percent)
		}
		if s.Rises > 1 && s.Percent < was {
			t.Fatalf("from %v back to %v", was, s.Percent)
		}
		if left, ok := s.Remaining(day); !ok && left != 0 {
			t.Fatalf("%v left, and not known", left)
		}
		stored, err := json.Marshal(s)
		if err != nil {
			return // a year beyond 9999
		}
		if err := json.Unmarshal(stored, &again); err != nil {
			t.Fatal(err)
		}
		if restored := encode(t, again); restored != string(stored) {
			t.Fatalf("%s came back as %s", stored, restored)
		}
	})
}
