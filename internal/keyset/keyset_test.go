package keyset_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/bide-dev/bide/internal/keyset"
)

// set is some of the numbers below top, dense or sparse, in blocks or spread.
func set(r *rand.Rand, top int64) (keys []int64) {
	share, block := r.Float64()*r.Float64(), 1+r.Int64N(40)
	for k := int64(0); k < top; k += block {
		if r.Float64() < share {
			for i := range block {
				keys = append(keys, min(k+i, top-1))
			}
		}
	}
	r.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	return keys
}

// pages reads a source to its end.
func pages(t *testing.T, s keyset.Source, from, below int64, n int) (all []int64) {
	t.Helper()
	for {
		keys, err := s(from, below, n)
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range keys {
			if k >= below || k < from {
				t.Fatalf("%d is not from %d on and below %d", k, from, below)
			}
			all, below = append(all, k), k
		}
		if len(keys) < n {
			return all
		}
	}
}

// windowed is a source that scans windows of a size.
func windowed(keys []int64, size int64) keyset.Source {
	all := keyset.Of(slices.Clone(keys))
	return keyset.Window(func(from, below int64, n int) ([]int64, error) { return all(max(from, below-size), below, n) },
		func(from, below int64) (int64, error) { return max(below-size, from), nil },
		func(below int64, n int) ([]int64, error) {
			some := slices.DeleteFunc(slices.Clone(keys), func(k int64) bool { return k >= below })
			return some[:min(n, len(some))], nil
		})
}

// Sources put together have what sets put together have, page by page.
func TestSources(t *testing.T) {
	defer keyset.Few(4096)
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		keyset.Few(r.IntN(1000))
		top := 1 + r.Int64N(3000)
		var sets []map[int64]bool
		var sources []keyset.Source
		for range 1 + r.IntN(4) {
			keys, has := set(r, top), map[int64]bool{}
			for _, k := range keys {
				has[k] = true
			}
			sets = append(sets, has)
			if r.IntN(2) == 0 {
				sources = append(sources, keyset.Of(keys))
				continue
			}
			sources = append(sources, windowed(keys, 1+r.Int64N(top)))
		}
		below := top
		if r.IntN(2) == 0 {
			below = r.Int64N(top + 1)
		}
		from := int64(0)
		if r.IntN(2) == 0 {
			from = r.Int64N(top)
		}
		var inAny, inAll []int64
		for k := below - 1; k >= from; k-- {
			n := 0
			for _, s := range sets {
				if s[k] {
					n++
				}
			}
			if n > 0 {
				inAny = append(inAny, k)
			}
			if n == len(sets) {
				inAll = append(inAll, k)
			}
		}
		n := 1 + r.IntN(200)
		if got := pages(t, keyset.Any(sources...), from, below, n); !slices.Equal(got, inAny) {
			t.Errorf("seed %d: in any are %v, want %v", seed, got, inAny)
		}
		if got := pages(t, keyset.All(sources...), from, below, n); !slices.Equal(got, inAll) {
			t.Errorf("seed %d: in all are %v, want %v", seed, got, inAll)
		}
	}
}

// What is in all of them costs what the rarest costs, however many the others have.
func TestAllLeaps(t *testing.T) {
	asked := 0
	common := func(from, below int64, n int) (keys []int64, _ error) { // every number
		asked += n
		for k := below - 1; k >= from && len(keys) < n; k-- {
			keys = append(keys, k)
		}
		return keys, nil
	}
	got := pages(t, keyset.All(common, keyset.Of([]int64{7, 500_000, 900_000})), 0, 1_000_000, 50)
	if !slices.Equal(got, []int64{900_000, 500_000, 7}) || asked > 5_000 {
		t.Errorf("got %v after %d keys", got, asked)
	}
}

// Of several, those that cost more are asked for what the others leave to them.
func TestAnyAsksForLess(t *testing.T) {
	dear := func(from, below int64, _ int) ([]int64, error) {
		if from != 98 || below != 1000 {
			t.Errorf("asked for %d to %d", from, below)
		}
		return nil, nil
	}
	keys, err := keyset.Any(keyset.Of([]int64{97, 98, 99}), keyset.Of([]int64{98}), dear)(0, 1000, 3)
	if err != nil || !slices.Equal(keys, []int64{99, 98, 97}) {
		t.Error(keys, err)
	}
}

func TestFails(t *testing.T) {
	broken := errors.New("broken")
	fails := func(int64, int64, int) ([]int64, error) { return nil, broken }
	one := keyset.Of([]int64{1})
	floor := func(int64, int64) (int64, error) { return 5, nil }
	many := func(_ int64, n int) ([]int64, error) { return make([]int64, min(n, 4096)), nil }
	for i, s := range []keyset.Source{keyset.All(one, fails), keyset.Any(one, fails), keyset.Window(fails, floor, many),
		keyset.Window(one, func(int64, int64) (int64, error) { return 0, broken }, many),
		keyset.Window(one, floor, func(int64, int) ([]int64, error) { return nil, broken }),
		keyset.Window(one, floor, func(_ int64, n int) ([]int64, error) {
			if n == math.MaxInt {
				return nil, broken
			}
			return make([]int64, n), nil
		})} {
		if _, err := s(0, math.MaxInt64, 10); !errors.Is(err, broken) {
			t.Errorf("source %d: %v", i, err)
		}
	}
}
