package main

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// fault is something that goes wrong for a while.
type fault struct {
	At     time.Duration // from the beginning
	For    time.Duration
	Kind   string // see kinds
	Target string // a node, a link, or ""
	Mode   mode   // of a cut
	By     time.Duration
}

func (f fault) String() string {
	what := []string{f.Kind}
	if f.Target != "" {
		what = append(what, f.Target)
	}
	if f.Kind == "cut" {
		what = append(what, modes[f.Mode])
	}
	if f.By != 0 {
		what = append(what, f.By.String())
	}
	return fmt.Sprintf("%s at %v for %v", strings.Join(what, " "), f.At.Round(time.Millisecond), f.For.Round(time.Millisecond))
}

// kind is something that can go wrong, and how often compared with the others.
type kind struct {
	name   string
	weight int
}

var kinds = []kind{{"kill", 4}, {"stop", 3}, {"cut", 6}, {"crash", 1}, {"full", 1}, {"skew", 2}}

// scene is what there is to break.
type scene struct {
	lease time.Duration
	nodes []string // that can be killed, stopped, skewed
	links []string // that can be cut
	left  []string // kinds that cannot be had here
}

// Storms and calms follow each other: what comes of faults that overlap is seen in
// the one, whether everything finds its way back in the other.
const (
	storm = 12 * time.Second
	calm  = 9 * time.Second
)

// plan is the faults of a seed, the earliest first; they are over in good time.
func plan(seed uint64, total time.Duration, s scene) []fault {
	rng := rand.New(rand.NewPCG(seed, 7))
	within := func(from, to time.Duration) time.Duration { return from + time.Duration(rng.Int64N(int64(to-from))) }
	var all []fault
	busy := map[string]time.Duration{} // until when a target has its fault
	deck := shuffled(rng, s.left)
	if len(deck) == 0 {
		return nil
	}
	for begin := 2 * time.Second; begin+storm/2 < total; begin += storm + calm {
		until := min(begin+storm, total-calm/3)
		for at := begin; at < until; at += within(200*time.Millisecond, 2*time.Second) {
			if len(deck) == 0 {
				deck = shuffled(rng, s.left)
			}
			f := fault{At: at, For: within(300*time.Millisecond, 4*time.Second), Kind: deck[0]}
			switch f.Kind {
			case "kill":
				f.Target, f.For = pick(rng, s.nodes), within(100*time.Millisecond, s.lease+time.Second)
			case "stop":
				f.Target, f.For = pick(rng, s.nodes), within(s.lease/2, 3*s.lease)
			case "skew":
				f.Target = pick(rng, s.nodes)
				f.By = [...]time.Duration{-10, 10}[rng.IntN(2)] * time.Minute
			case "cut":
				f.Target, f.Mode = pick(rng, s.links), pick(rng, []mode{hold, half, lose, reset, delay})
			case "crash", "full":
				f.Target = "db"
				f.For = min(f.For, 3*time.Second)
			}
			f.For = min(f.For, max(until-at, 300*time.Millisecond))
			if busy[f.Target] > at {
				continue
			}
			busy[f.Target] = at + f.For + time.Second
			deck = deck[1:]
			all = append(all, f)
		}
	}
	slices.SortStableFunc(all, func(a, b fault) int { return cmp.Compare(a.At, b.At) })
	return all
}

// shuffled is a deck of kinds, so that each has its turn, however short the plan.
func shuffled(rng *rand.Rand, left []string) (deck []string) {
	for _, k := range kinds {
		for range k.weight {
			if !slices.Contains(left, k.name) {
				deck = append(deck, k.name)
			}
		}
	}
	rng.Shuffle(len(deck), func(i, j int) { deck[i], deck[j] = deck[j], deck[i] })
	return deck
}

func pick[T any](rng *rand.Rand, from []T) T { return from[rng.IntN(len(from))] }
