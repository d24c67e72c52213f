package bide_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/bide-dev/bide"
)

// panicOf returns what fn panics with, "" for nothing.
func panicOf(fn func()) (said string) {
	defer func() {
		if r := recover(); r != nil {
			said = fmt.Sprint(r)
		}
	}()
	fn()
	return ""
}

// Options that make no sense panic where the loop is defined, and name the field.
func TestLoopBadOptions(t *testing.T) {
	every := bide.Every(10 * sec)
	hourly := bide.On(everyFull(time.Hour), bide.MisfireOnce)
	for _, c := range []struct {
		field string // in the panic; "": none
		opts  []bide.LoopOption
	}{
		{"", []bide.LoopOption{every}},
		{"", []bide.LoopOption{hourly, bide.Exact{}, bide.RunImmediately{}, bide.Breaker{}, bide.Group{Name: "g", Limit: 1}, bide.Queue("q")}},
		{"", []bide.LoopOption{every, bide.MinInterval(sec), bide.MaxMultiplier(1), bide.Adaptive{Min: sec, Max: sec}, bide.Condition(nil)}},
		{"Every", nil},
		{"Every", []bide.LoopOption{bide.Every(0)}},
		{"Every", []bide.LoopOption{bide.Every(9 * time.Millisecond)}},
		{"Every", []bide.LoopOption{bide.Every(-sec)}},
		{"Every", []bide.LoopOption{every, hourly}},
		{"Every", []bide.LoopOption{every, bide.MinInterval(time.Minute)}},
		{"MinInterval", []bide.LoopOption{every, bide.MinInterval(-1)}},
		{"MaxMultiplier", []bide.LoopOption{every, bide.MaxMultiplier(-1)}},
		{"Adaptive.Max", []bide.LoopOption{every, bide.Adaptive{Min: time.Minute, Max: sec}}},
		{"Adaptive.Min", []bide.LoopOption{every, bide.Adaptive{Max: time.Minute}}},
		{"InitialDelay", []bide.LoopOption{every, bide.InitialDelay(-1)}},
		{"AttemptTimeout", []bide.LoopOption{every, bide.AttemptTimeout(0)}},
		{"Breaker.Failures", []bide.LoopOption{every, bide.Breaker{Failures: -1}}},
		{"Breaker.Cooldown", []bide.LoopOption{hourly, bide.Breaker{Cooldown: -1}}},
		{"Group.Limit", []bide.LoopOption{every, bide.Group{Name: "g"}}},
		{"Group.Name", []bide.LoopOption{every, bide.Group{Limit: 3}}},
		{"On", []bide.LoopOption{bide.On(nil, bide.MisfireOnce)}},
		{"On", []bide.LoopOption{every, bide.On(nil, bide.MisfireOnce)}},
		{"On", []bide.LoopOption{bide.On(everyFull(sec), 7)}},
		{"On", []bide.LoopOption{hourly, bide.Adaptive{Min: sec, Max: sec}}},
		{"On", []bide.LoopOption{hourly, bide.MaxMultiplier(3)}},
		{"On", []bide.LoopOption{hourly, bide.MinInterval(sec)}},
	} {
		said := panicOf(func() { bide.Loop("it", func(context.Context) {}, c.opts...) })
		if c.field == "" && said != "" || c.field != "" && !strings.HasPrefix(said, `bide.Loop "it": bide: `+c.field+": ") {
			t.Errorf("%#v: panics with %q, want %q in it", c.opts, said, c.field)
		}
	}
}

// So do a function that is nil, of whichever form, and a name that is no id.
func TestLoopBadNameOrFunction(t *testing.T) {
	for name, fn := range map[string]func(){
		"func()": func() { bide.Loop[func(context.Context)]("it", nil, bide.Every(sec)) },
		"error":  func() { bide.Loop[func(context.Context) error]("it", nil, bide.Every(sec)) },
		"bool":   func() { bide.Loop[func(context.Context) bool]("it", nil, bide.Every(sec)) },
		"Result": func() { bide.Loop[func(context.Context) (bide.Result, error)]("it", nil, bide.Every(sec)) },
	} {
		if said := panicOf(fn); !strings.Contains(said, "function: is nil") {
			t.Errorf("%s: a nil function panics with %q", name, said)
		}
	}
	for _, name := range []string{"", " ", "two words", "tab\t", "\x7f", "\xff", strings.Repeat("x", 251)} {
		if said := panicOf(func() { bide.Loop(name, func(context.Context) {}, bide.Every(sec)) }); !strings.Contains(said, "loop name") {
			t.Errorf("the name %q panics with %q", name, said)
		}
	}
	for _, name := range []string{"x", "ünï-codé/1", strings.Repeat("x", 250)} {
		if said := panicOf(func() { bide.Loop(name, func(context.Context) {}, bide.Every(sec)) }); said != "" {
			t.Errorf("the name %q panics with %q", name, said)
		}
		inBubble(t, func(e *env) {
			l := bide.Loop(name, func(context.Context) {}, bide.Every(sec), bide.Exact{})
			e.work(l)
			time.Sleep(sec + sec/2)
			if s := e.loopState(name); s.Iterations != 1 || s.Name != name || l.Name() != name {
				t.Errorf("the loop %q: %s", name, jsonOf(t, s))
			}
		})
	}
}

// Two loops of one name in one worker are a mistake; the same one twice is none.
func TestLoopNamesAreUnique(t *testing.T) {
	inBubble(t, func(e *env) {
		w := bide.NewWorker(e.store, e.config())
		a := bide.Loop("it", func(context.Context) {}, bide.Every(sec))
		b := bide.Loop("it", func(context.Context) {}, bide.Every(sec))
		w.Register(a, a)
		if said := panicOf(func() { w.Register(b) }); !strings.Contains(said, "it") || !strings.Contains(said, "rename") {
			t.Errorf("panics with %q", said)
		}
	})
}
