// Package timeline tells a time that waits can go by, on a machine whose wall clock
// is set forward and back and which sleeps now and then.
package timeline

import (
	"sync"
	"sync/atomic"
	"time"
)

// Line is a clock that follows the wall clock forward but never goes back, and
// never falls behind the machine's own ticking. So a wait that has begun ends no
// later than the time it was given, whatever is done to the wall clock, and a
// machine that wakes up finds at once what became due in its sleep.
type Line struct {
	skew   time.Duration // that it began with, to the wall clock
	steady bool          // the wall clock says nothing of it

	ahead time.Duration // of a steady one

	mu    sync.Mutex
	shown time.Time // what it showed
	tick  time.Time // when, by the machine's ticking
}

// Start returns a line that shows the given time now, which is ahead of where a
// wall clock has it.
func Start(shows time.Time, ahead time.Duration) *Line {
	wall, tick := read()
	shows = shows.UTC().Round(0)
	return &Line{skew: shows.Add(-ahead).Sub(wall), shown: shows, tick: tick}
}

// Steady returns a line of a clock that is elsewhere and was read just now: it
// follows the machine's ticking alone, whatever is done to the wall clock here.
func Steady(shows time.Time, ahead time.Duration) *Line {
	l := Start(shows, ahead)
	l.steady, l.ahead = true, ahead
	return l
}

// Now returns the line's time, in UTC and without a monotonic part.
func (l *Line) Now() time.Time {
	now, _ := l.Read()
	return now
}

// Ahead returns by how much the line is ahead of where the wall clock would have
// it: 0 unless that was set back.
func (l *Line) Ahead() time.Duration {
	_, ahead := l.Read()
	return ahead
}

// Read returns both.
func (l *Line) Read() (now time.Time, ahead time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	wall, tick := read()
	now, byWall := l.shown.Add(tick.Sub(l.tick)), wall.Add(l.skew)
	if l.steady {
		return now, l.ahead
	}
	if byWall.After(now) {
		now, l.shown, l.tick = byWall, byWall, tick
	}
	if ahead = now.Sub(byWall); ahead < time.Second { // nobody has set it back by so little
		ahead = 0
	}
	return now, ahead
}

var jumped atomic.Int64

// Jump is for tests: from now on the wall clock is as if it had been set forward,
// or for a negative d back.
func Jump(d time.Duration) { jumped.Add(int64(d)) }

// read reads both clocks of the machine.
func read() (wall, tick time.Time) {
	tick = time.Now()
	return tick.UTC().Round(0).Add(time.Duration(jumped.Load())), tick
}
