package bide

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/bide-dev/bide/wait"
)

// LoopFunc is what a loop does each time. An error, false, a panic and
// [LoopFail] are failures.
type LoopFunc interface {
	func(context.Context) | func(context.Context) error | func(context.Context) bool | func(context.Context) (Result, error)
}

// Result is how an iteration of a loop went.
type Result int8

// The results. A loop that does not tell whether it found news is compared by
// what it has given to [Publish], if it did.
const (
	LoopOK        Result = iota + 1
	LoopFail             // it did not work; the interval grows
	LoopChanged          // there is news
	LoopUnchanged        // there is none
	LoopSkip             // nothing was done; as if the time had not come
)

// LoopDefinition is a defined loop, for [Worker.Register].
type LoopDefinition struct{ def *definition }

func (l *LoopDefinition) definition() *definition { return l.def }

// Name returns the loop's name.
func (l *LoopDefinition) Name() string { return strings.TrimPrefix(l.def.name, loopPrefix) }

const loopPrefix = "loop:"

// LoopOption is an option of [Loop]: [Every], [On], [MinInterval], [InitialDelay],
// [RunImmediately], [MaxMultiplier], [Exact], [AttemptTimeout], [Condition],
// [Adaptive], [Breaker], [Group], [Queue].
type LoopOption interface{ loop(*loop) }

// Loop defines a loop: a named poll that never finishes. It runs fn again and
// again, one iteration at a time over all processes that have it registered, each
// an interval after the last has ended. A failure doubles the interval, up to
// [MaxMultiplier]; a success brings it back at once. What it remembers is in the
// store under its name; a loop has no history. The first iteration comes after one
// interval, or at once with [RunImmediately].
//
// fn gets the context of a step: [Publish] keeps what it finds, [Observe] what a
// server has said. It must bear to be called once more after a crash.
//
// Loop panics on an empty name, an interval below 10 ms, neither or both of
// [Every] and [On], or other options that make no sense. Two loops of one name
// cannot be registered with one [Worker].
func Loop[F LoopFunc](name string, fn F, opts ...LoopOption) *LoopDefinition {
	l := &loop{name: name, timeout: loopTimeout, fn: iteration(fn), busy: make(chan struct{}, 1)}
	def := &definition{name: loopPrefix + name, loop: l, validate: func(json.RawMessage) error { return nil }}
	l.def = def
	for _, o := range opts {
		o.loop(l)
	}
	if err := l.check(); err != nil {
		panic(fmt.Sprintf("bide.Loop %q: %v", name, err))
	}
	def.call = func(ctx Context, _ json.RawMessage) Next { return l.run(ctx) }
	return &LoopDefinition{def}
}

// loopTimeout is how long an iteration may take unless [AttemptTimeout] says so.
const loopTimeout = time.Minute

// loop is a loop's definition.
type loop struct {
	def       *definition
	name      string
	fn        func(context.Context) (Result, error)
	pace      wait.Pace
	fixed     bool // by the schedule, not by the pace
	schedule  Schedule
	misfire   Misfire
	delay     *time.Duration
	timeout   time.Duration
	condition func(context.Context) bool
	breaker   *wait.Breaker
	group     Group
	busy      chan struct{} // holds one while fn runs: one that does not heed its context must not be overlapped
}

func iteration(fn any) func(context.Context) (Result, error) {
	if reflect.ValueOf(fn).IsNil() {
		return nil
	}
	switch fn := fn.(type) {
	case func(context.Context):
		return func(ctx context.Context) (Result, error) { fn(ctx); return LoopOK, nil }
	case func(context.Context) error:
		return func(ctx context.Context) (Result, error) { return LoopOK, fn(ctx) }
	case func(context.Context) bool:
		return func(ctx context.Context) (Result, error) {
			if fn(ctx) {
				return LoopOK, nil
			}
			return LoopFail, nil
		}
	}
	f, _ := fn.(func(context.Context) (Result, error))
	return f
}

func (l *loop) check() error {
	switch {
	case l.name == "" || strings.ContainsFunc(l.name, unfit) || len(l.name) > maxID-len(loopPrefix):
		return &InvalidError{Field: "loop name", Reason: fmt.Sprintf("is %q; give it a plain, lasting name without white space", l.name)}
	case l.fn == nil:
		return &InvalidError{Field: "function", Reason: "is nil"}
	case l.fixed && l.schedule == nil:
		return &InvalidError{Field: "On", Reason: "was given no schedule"}
	case l.fixed && (l.misfire < MisfireOnce || l.misfire > MisfireAll):
		return &InvalidError{Field: "On", Reason: fmt.Sprintf("was given the misfire policy %d, which is none of the constants", l.misfire)}
	case l.fixed && l.pace.Interval != 0:
		return &InvalidError{Field: "Every", Reason: "and On exclude each other"}
	case l.fixed && (l.pace.Min != 0 || l.pace.MaxMultiplier != 0 || l.pace.Adaptive != nil):
		return &InvalidError{Field: "On", Reason: "fixes the times: leave MinInterval, MaxMultiplier and Adaptive out"}
	case !l.fixed && l.pace.Interval == 0:
		return &InvalidError{Field: "Every", Reason: "and On are both missing; give one of them"}
	case l.timeout <= 0:
		return &InvalidError{Field: "AttemptTimeout", Reason: "must be above 0"}
	case l.delay != nil && *l.delay < 0:
		return &InvalidError{Field: "InitialDelay", Reason: "is negative"}
	case l.group.Name == "" && l.group.Limit != 0:
		return &InvalidError{Field: "Group.Name", Reason: "is empty"}
	case l.group.Name != "" && l.group.Limit < 1:
		return &InvalidError{Field: "Group.Limit", Reason: "must be at least 1"}
	}
	if l.breaker != nil {
		if err := l.breaker.Check(); err != nil {
			return invalidField(err)
		}
	}
	if l.fixed {
		return nil
	}
	return paceField(l.pace.Check())
}

// paceField is a complaint about a pace by the names of its options.
func paceField(err error) error {
	if f, ok := errors.AsType[*wait.FieldError](err); ok {
		switch f.Field {
		case "Interval":
			return &InvalidError{Field: "Every", Reason: f.Reason}
		case "Min":
			return &InvalidError{Field: "MinInterval", Reason: f.Reason}
		}
	}
	return invalidField(err)
}

// unfit are the characters that an id, which a loop's name becomes, must not have.
func unfit(r rune) bool { return r <= ' ' || r == 0x7f || r == utf8.RuneError }

func (d Every) loop(l *loop)          { l.pace.Interval = time.Duration(d) }
func (d MinInterval) loop(l *loop)    { l.pace.Min = time.Duration(d) }
func (d InitialDelay) loop(l *loop)   { l.delay = (*time.Duration)(&d) }
func (RunImmediately) loop(l *loop)   { l.delay = new(time.Duration(0)) }
func (n MaxMultiplier) loop(l *loop)  { l.pace.MaxMultiplier = int(n) }
func (Exact) loop(l *loop)            { l.pace.Exact = true }
func (d AttemptTimeout) loop(l *loop) { l.timeout = time.Duration(d) }
func (c Condition) loop(l *loop)      { l.condition = c }
func (a Adaptive) loop(l *loop)       { l.pace.Adaptive = (*wait.Adaptive)(&a) }
func (g Group) loop(l *loop)          { l.group = g }
func (q Queue) loop(l *loop)          { l.def.queue = string(q) }
func (s schedule) loop(l *loop)       { l.fixed, l.schedule, l.misfire = true, s.times, s.misfire }

// RunImmediately lets a new loop's first iteration begin at once.
type RunImmediately struct{}

// MaxMultiplier is the most times its interval that failures make a loop wait;
// the default is 8.
type MaxMultiplier int

// Condition is asked before each iteration: while it is false the loop skips,
// which counts as neither success nor failure.
type Condition func(context.Context) bool

// Adaptive fits a loop's interval to how often there is news: half of it after an
// iteration that found some, half as much again after three in a row that did not.
type Adaptive struct{ Min, Max time.Duration }

// Group bounds how many iterations of the loops of one group are in flight in one
// worker.
type Group struct {
	Name  string
	Limit int
}

// Schedule says when: the first time after the given one, or the zero time for
// never. Package cron makes them of cron expressions. A loop whose Schedule panics,
// or does not move on, is stuck until it is mended.
type Schedule interface {
	Next(after time.Time) time.Time
}

// Misfire says what becomes of the times of a [Schedule] that passed while nobody
// was there.
type Misfire int8

// The misfire policies.
const (
	MisfireOnce Misfire = iota // one iteration for all of them, at once
	MisfireSkip                // none
	MisfireAll                 // one iteration for each, in order
)

// On makes a loop run at fixed times instead of at an interval after the last
// iteration. Failures do not move them.
func On(s Schedule, m Misfire) LoopOption { return schedule{s, m} }

type schedule struct {
	times   Schedule
	misfire Misfire
}

// ScheduledAt returns the time that the iteration whose context it is given is for,
// however late it runs: that of the schedule or the end of the interval, or of the
// trigger. An iteration that is begun anew after a crash has the same again, so an
// id made of it starts one run and not two. It is zero elsewhere.
func ScheduledAt(ctx context.Context) time.Time {
	if a := attemptOf(ctx); a != nil {
		return a.due
	}
	return time.Time{}
}
