package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// The processes of the cluster are this binary.
func TestMain(m *testing.M) {
	if text := os.Getenv(roleEnv); text != "" {
		fmt.Fprintln(os.Stderr, play(text))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// A seed is always the same plan, in which everything is healed before the end and
// no target has two faults at once; every kind has its turn.
func TestPlan(t *testing.T) {
	s := scene{lease: lease, nodes: []string{"w0", "w1", "s0"}, links: []string{"w0-db", "w1-db", "w0-witness"}}
	kinds := map[string]int{}
	for seed := range uint64(50) {
		total := 20*time.Second + time.Duration(seed)*5*time.Second
		a, b := plan(seed, total, s), plan(seed, total, s)
		if len(a) < 3 || !slices.Equal(a, b) {
			t.Fatalf("seed %d: %v and %v", seed, a, b)
		}
		until := map[string]time.Duration{}
		for _, f := range a {
			kinds[f.Kind]++
			if f.At < until[f.Target] || f.For <= 0 || f.At+f.For > total {
				t.Errorf("seed %d, of %v: %v, with %v in hand until %v", seed, total, f, f.Target, until[f.Target])
			}
			until[f.Target] = f.At + f.For
		}
	}
	for _, kind := range []string{"kill", "stop", "cut", "crash", "full", "skew"} {
		if kinds[kind] < 10 {
			t.Errorf("%s comes %d times in 50 plans", kind, kinds[kind])
		}
	}
	s.left = []string{"full", "skew"}
	for _, f := range plan(1, time.Hour, s) {
		if slices.Contains(s.left, f.Kind) {
			t.Fatalf("%v was to be left out", f)
		}
	}
}

// A few jobs use every verb, and each leaves what it says.
func TestJobs(t *testing.T) {
	used := map[string]bool{}
	p := newPatrons(t.Context(), 1)
	for i := range 200 {
		for _, round := range p.newJob(i, rand.New(rand.NewPCG(1, uint64(i)))).Rounds {
			for _, name := range round {
				used[name] = true
			}
		}
	}
	for name, v := range verbs {
		if !used[name] {
			t.Errorf("none of 200 jobs uses %s", name)
		}
		if at := place(0, 1, name); verbOf(at) != name || len(v.steps(at)) == 0 {
			t.Errorf("%s: %q, %v", at, verbOf(at), v.steps(at))
		}
		if want := fates[name]; want != 0 && v.gets("j", "0.1."+name) == nil {
			t.Errorf("%s does not tell how its victim ends", name)
		}
	}
}

func TestBadFlags(t *testing.T) {
	for flag, want := range map[string]string{"-for=1s": "-for", "-rate=0": "-rate", "-late=1ms": "-late", "more": "unexpected", "-without=rain": "rain"} {
		var out bytes.Buffer
		if err := run(t.Context(), []string{flag}, &out); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", flag, err)
		}
	}
}
