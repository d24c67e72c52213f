package wait

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"time"
)

const (
	sketchBins   = 512 // sixteen to a doubling, from 1 ms to 397 days
	sketchUnits  = 64  // of weight, which one wait has
	sketchMemory = 256 // waits; beyond them every weight is halved
)

// Sketch is what is remembered of how long waits took: a histogram whose bins
// are 3 to 6 % wide, in which older waits fade, so that it follows durations that
// drift (the last two hundred or so count). The zero value knows nothing. Its
// JSON is below 2 KB, a few hundred bytes as a rule.
//
// It keeps what it computed for [Sketch.Pause]. A copy is independent of its
// original; one Sketch is not for concurrent use.
type Sketch struct {
	waits   int
	total   int // of weights
	weights [sketchBins]uint16
	plan    *sketchPlan // nil: to be made; never changed, since copies share it
}

// Count returns how many waits were added.
func (s *Sketch) Count() int { return s.waits }

// Add remembers a wait of which it is known how long it took.
func (s *Sketch) Add(d time.Duration) { s.AddBetween(d, d) }

// AddBetween remembers a wait that was seen pending the last time at one moment
// and done at another, both counted from its start: all that a poll can know.
// Where between them it ended is guessed from the other waits. The guess is
// mended as checks move to where waits are thought to end (the EMS algorithm:
// expectation maximisation, with smoothing, one observation at a time).
func (s *Sketch) AddBetween(pending, done time.Duration) {
	const last = sketchBins - 1
	a := min(max(pending, 0), sketchEdge(last))
	b := min(max(done, a), sketchEdge(last))
	from, to := sketchBin(a), sketchBin(b)
	smooth := s.smooth()
	within := func(i int) float64 { return float64(min(b, sketchEdge(i+1)) - max(a, sketchEdge(i))) }
	var known float64
	for i := from; i <= to; i++ {
		smooth[i] *= within(i) / float64(sketchEdge(i+1)-sketchEdge(i))
		known += smooth[i]
	}
	// A little goes evenly over the time between, so that what has never been
	// seen can come to be known.
	even := 1.0 / 32
	if known == 0 {
		even, known = 1, 1
	}
	var sum float64
	given := 0
	for i := from; i < to; i++ {
		sum += even*within(i)/float64(b-a) + (1-even)*smooth[i]/known
		units := min(int(math.Round(sum*sketchUnits)), sketchUnits)
		s.weights[i] += uint16(units - given)
		given = units
	}
	s.weights[to] += uint16(sketchUnits - given)
	s.total += sketchUnits
	if s.total > sketchMemory*sketchUnits {
		s.total = 0
		for i := range s.weights {
			s.weights[i] /= 2
			s.total += int(s.weights[i])
		}
	}
	s.waits = min(s.waits, math.MaxInt-1) + 1
	s.plan = nil
}

// Quantile returns the duration that a share q of the waits did not exceed, to a
// few per cent; 0 when nothing is known.
func (s *Sketch) Quantile(q float64) time.Duration {
	if s.total == 0 {
		return 0
	}
	want := float64(s.total) * min(max(q, 0), 1)
	var end time.Duration
	for i, w := range s.weights {
		if w == 0 {
			continue
		}
		begin := sketchEdge(i)
		end = sketchEdge(i + 1)
		if want <= float64(w) {
			return begin + time.Duration(want/float64(w)*float64(end-begin))
		}
		want -= float64(w)
	}
	return end
}

// smooth returns the weights spread over their neighbours: the wider, the fewer
// waits are known.
func (s *Sketch) smooth() [sketchBins]float64 {
	var v [sketchBins]float64
	width := int(math.Round(32 / math.Sqrt(float64(s.known()))))
	all := float64((width + 1) * (width + 1))
	for i, w := range s.weights {
		if w == 0 {
			continue
		}
		for j := -width; j <= width; j++ {
			v[min(max(i+j, 0), sketchBins-1)] += float64(w) * float64(width+1-max(j, -j)) / all
		}
	}
	return v
}

// known is how many waits can be in the weights, at least 1.
func (s *Sketch) known() int { return min(max(s.waits, 1), sketchMemory) }

// sketchBin returns the bin that d is in: of its number of milliseconds the
// exponent and the four bits after the first.
func sketchBin(d time.Duration) int {
	ms := uint64(max(d, 0) / time.Millisecond)
	e := max(bits.Len64(ms)-5, 0)
	return min(16*e+int(ms>>e), sketchBins-1)
}

// sketchEdge returns where bin i begins.
func sketchEdge(i int) time.Duration {
	e := max(i/16-1, 0)
	return time.Duration(i-16*e) << e * time.Millisecond
}

// sketchJSON has the weights from the first that is not 0 to the last.
type sketchJSON struct {
	Waits   int      `json:"waits"`
	First   int      `json:"first,omitempty"`
	Weights []uint16 `json:"weights,omitempty"`
}

// MarshalJSON implements [json.Marshaler].
func (s Sketch) MarshalJSON() ([]byte, error) {
	from, to := s.span()
	return json.Marshal(sketchJSON{s.waits, from, s.weights[from:to]})
}

// span returns the first bin with weight, and the one after the last.
func (s *Sketch) span() (from, to int) {
	for i, w := range s.weights {
		if w > 0 {
			if to == 0 {
				from = i
			}
			to = i + 1
		}
	}
	return from, to
}

// UnmarshalJSON implements [json.Unmarshaler]. What no sketch can have written is
// an error, and leaves s as it was.
func (s *Sketch) UnmarshalJSON(data []byte) error {
	var j sketchJSON
	if err := json.Unmarshal(data, &j); err != nil {
		return fmt.Errorf("wait: sketch: %w", err)
	}
	if j.First < 0 || j.First > sketchBins-len(j.Weights) {
		return fmt.Errorf("wait: sketch: first is %d, with %d weights; the bins are 0 to %d", j.First, len(j.Weights), sketchBins-1)
	}
	n := Sketch{waits: j.Waits}
	for i, w := range j.Weights {
		n.weights[j.First+i] = w
		n.total += int(w)
	}
	switch {
	case j.Waits < 0:
		return fmt.Errorf("wait: sketch: waits is %d; it must not be negative", j.Waits)
	case j.Waits > 0 && n.total == 0:
		return errors.New("wait: sketch: it has waits, but no weights")
	case n.total > min(j.Waits, sketchMemory)*sketchUnits:
		return fmt.Errorf("wait: sketch: weights of %d are too much for %d waits", n.total, j.Waits)
	}
	*s = n
	return nil
}
