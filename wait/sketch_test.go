package wait_test

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bide-dev/bide/wait"
)

func TestSketchQuantiles(t *testing.T) {
	var s wait.Sketch
	if q := s.Quantile(0.5); q != 0 || s.Count() != 0 {
		t.Errorf("a new sketch has the median %v and %d waits", q, s.Count())
	}
	rnd := rand.New(rand.NewPCG(1, 1))
	var waits []time.Duration
	for range 250 { // as many as it remembers in full
		d := time.Duration(math.Exp(rnd.Float64()*14) * 0.1 * float64(time.Second))
		waits = append(waits, d)
		s.Add(d)
	}
	slices.Sort(waits)
	for i := range 249 {
		q := (float64(i) + 0.5) / 250
		if got := s.Quantile(q); float64(got) < 0.93*float64(waits[max(i-1, 0)]) || float64(got) > 1.07*float64(waits[i+1]) {
			t.Errorf("the quantile %v is %v, and the waits around it are %v and %v", q, got, waits[i], waits[i+1])
		}
	}
	if s.Count() != 250 {
		t.Errorf("Count is %d", s.Count())
	}
}

// A sketch forgets: of durations long past nothing is left.
func TestSketchFollowsDrift(t *testing.T) {
	var s wait.Sketch
	for range 10_000 {
		s.Add(time.Hour)
	}
	for range 300 {
		s.Add(time.Minute)
	}
	if q := s.Quantile(0.5); q < 55*time.Second || q > 65*time.Second {
		t.Errorf("after 300 waits of a minute the median is %v", q)
	}
	for range 1_000 {
		s.Add(time.Minute)
	}
	if q := s.Quantile(0.99); q > 65*time.Second {
		t.Errorf("after 1,300 waits of a minute a quantile is still %v", q)
	}
}

// Of intervals that overlap it learns where the ends were, which lie in none of
// the middles.
func TestSketchLearnsFromIntervals(t *testing.T) {
	var s wait.Sketch
	rnd := rand.New(rand.NewPCG(2, 2))
	for range 500 { // the end is at 100 s, a check every minute at a random phase
		before := time.Duration(rnd.Int64N(int64(time.Minute)))
		s.AddBetween(100*time.Second-before, 160*time.Second-before)
	}
	for _, q := range []float64{0.25, 0.5, 0.75} {
		if got := s.Quantile(q); got < 88*time.Second || got > 112*time.Second {
			t.Errorf("the quantile %v is %v, want about 100 s", q, got)
		}
	}
}

func TestSketchJSON(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"no object", `[]`, "cannot unmarshal"},
		{"negative waits", `{"waits":-1}`, "waits is -1"},
		{"no weights", `{"waits":3}`, "no weights"},
		{"weights without waits", `{"weights":[1]}`, "too much for 0 waits"},
		{"too much weight", `{"waits":1,"first":3,"weights":[64,1]}`, "too much for 1 waits"},
		{"more than it can hold", `{"waits":1000,"weights":[16384,1]}`, "too much for 1000 waits"},
		{"negative bin", `{"waits":1,"first":-1,"weights":[1]}`, "first is -1"},
		{"bin beyond the last", `{"waits":1,"first":511,"weights":[1,1]}`, "first is 511"},
		{"overflow", `{"waits":1,"first":9223372036854775807,"weights":[1,1]}`, "first is 9223372036854775807"},
		{"weight beyond the type", `{"waits":1000,"weights":[65536]}`, "cannot unmarshal"},
		{"negative weight", `{"waits":1000,"weights":[-1]}`, "cannot unmarshal"},
		{"zero value", `{"waits":0}`, ""},
		{"null", `null`, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var s wait.Sketch
			s.Add(time.Minute)
			err := json.Unmarshal([]byte(c.in), &s)
			switch {
			case c.want == "" && err != nil:
				t.Error(err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("error %v, want one with %q", err, c.want)
			case c.want != "" && s.Count() != 1:
				t.Error("the sketch was changed")
			}
		})
	}
}

// Whatever was added, the JSON is small and says all.
func TestSketchOverRandomWaits(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 3))
	for range 100 {
		var s wait.Sketch
		wide := 1 + rnd.IntN(62)
		for range rnd.IntN(1500) {
			a, b := rnd.Int64N(1<<wide), rnd.Int64N(1<<(1+rnd.IntN(wide)))
			s.AddBetween(time.Duration(a), time.Duration(a+b))
		}
		checkSketch(t, &s)
	}
	var s wait.Sketch
	for i := range 512 { // every bin
		for range 2 {
			s.Add(time.Duration(math.Pow(2, float64(i-64)/16) * 16 * float64(time.Millisecond)))
		}
		s.AddBetween(0, math.MaxInt64)
	}
	s.AddBetween(math.MaxInt64, math.MinInt64)
	s.AddBetween(math.MinInt64, math.MaxInt64)
	checkSketch(t, &s)
}

func FuzzSketch(f *testing.F) {
	f.Add([]byte(`{"waits":9,"first":300,"weights":[64,0,0,128,384]}`), int64(0), int64(time.Minute))
	f.Add([]byte(`{"waits":300,"weights":[1]}`), int64(math.MinInt64), int64(math.MaxInt64))
	f.Add([]byte(`{"waits":9223372036854775807,"first":511,"weights":[16384]}`), int64(math.MaxInt64), int64(1))
	f.Fuzz(func(t *testing.T, data []byte, a, b int64) {
		var s wait.Sketch
		if json.Unmarshal(data, &s) != nil {
			s = wait.Sketch{}
		}
		checkSketch(t, &s)
		s.AddBetween(time.Duration(a), time.Duration(b))
		for range 8 {
			s.Add(time.Duration(b))
		}
		checkSketch(t, &s)
	})
}

// checkSketch checks what holds for every sketch.
func checkSketch(t *testing.T, s *wait.Sketch) {
	t.Helper()
	data, err := json.Marshal(*s)
	if err != nil || len(data) > 2000 {
		t.Fatalf("%d bytes of JSON, %v: %s", len(data), err, data)
	}
	var again wait.Sketch
	if err := json.Unmarshal(data, &again); err != nil {
		t.Fatalf("its own JSON: %v: %s", err, data)
	}
	if back, err := json.Marshal(&again); err != nil || string(back) != string(data) {
		t.Fatalf("became %s, %v, from %s", back, err, data)
	}
	if again.Count() != s.Count() || s.Count() < 0 {
		t.Fatalf("%d waits, and %d when read again", s.Count(), again.Count())
	}
	last := time.Duration(0)
	for _, q := range []float64{math.NaN(), math.Inf(-1), -1, 0, 0.1, 0.5, 0.9, 1, 2, math.Inf(1)} {
		if d := s.Quantile(q); d < 0 || d < last && q > 0 {
			t.Fatalf("the quantile %v is %v, after %v: %s", q, d, last, data)
		} else if q > 0 {
			last = d
		}
	}
	for _, interval := range []time.Duration{math.MinInt64, 1, 10 * time.Second, time.Hour, math.MaxInt64} {
		for _, least := range []time.Duration{-1, time.Second, 1 << 50} {
			again := again // without a plan
			for _, at := range []time.Duration{math.MinInt64, 0, 1, last / 2, last - 1, last, last + 1, 2 * last, math.MaxInt64} {
				checkPause(t, s, &again, at, interval, least)
			}
		}
	}
}

// checkPause checks what holds for every pause: not too short, not too long for
// what is known, and the same from every sketch that knows the same.
func checkPause(t *testing.T, s, same *wait.Sketch, at, interval, least time.Duration) {
	t.Helper()
	d := s.Pause(at, interval, least)
	shortest := max(least, time.Millisecond)
	longest := float64(max(interval, shortest)) * max(1, float64(min(s.Count(), 256))/8)
	if d < shortest || float64(d) > max(longest, float64(shortest))*(1+1e-9)+1 {
		data, _ := json.Marshal(s)
		t.Fatalf("Pause(%v, %v, %v) is %v, not from %v to %v: %s", at, interval, least, d, shortest, time.Duration(min(longest, math.MaxInt64)), data)
	}
	if d2 := same.Pause(at, interval, least); d2 != d {
		t.Fatalf("Pause(%v, %v, %v) is %v and then %v", at, interval, least, d, d2)
	}
}
