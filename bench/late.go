package main

import (
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"time"
)

// tooLate is from when on something counts as late.
const tooLate = time.Second

// lateness collects how much later than due things came. It is made for so many,
// beforehand, so that it does not count for the memory that is measured.
type lateness struct {
	n    atomic.Int64
	late atomic.Int64
	all  []time.Duration
}

func newLateness(most int) *lateness {
	l := &lateness{all: make([]time.Duration, most)}
	for i := range l.all {
		l.all[i] = -1 // so that the pages are there
	}
	return l
}

func (l *lateness) add(d time.Duration) {
	if i := int(l.n.Add(1)) - 1; i < len(l.all) {
		l.all[i] = max(d, 0)
	}
	if d > tooLate {
		l.late.Add(1)
	}
}

// share is of those that came, and of so many that should have come and did not.
func (l *lateness) share(missing int) float64 {
	missing = max(missing, 0)
	return float64(int(l.late.Load())+missing) / float64(max(int(l.n.Load())+missing, 1))
}

func (l *lateness) quantile(q float64) float64 {
	return ms(quantile(l.all[:min(int(l.n.Load()), len(l.all))], q))
}

// resident is the memory in use once all garbage is given back.
func resident() int64 {
	runtime.GC()
	debug.FreeOSMemory()
	now, _ := memory()
	return now
}
