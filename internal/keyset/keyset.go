// Package keyset reads pages of rows by their keys, highest first, from several
// indexes at once: what is in all of them, found by leaping from one to the next,
// so that a page costs what the rarest of them costs.
package keyset

import (
	"math"
	"slices"
)

// Source finds keys from one on, and below another, the highest first and each once,
// at most n: fewer when there are no more.
type Source func(from, below int64, n int) ([]int64, error)

// Of is the source of keys that are at hand already, in any order.
func Of(keys []int64) Source {
	slices.SortFunc(keys, down)
	keys = slices.Compact(keys)
	return func(from, below int64, n int) ([]int64, error) {
		i, _ := slices.BinarySearchFunc(keys, below-1, down)
		j, _ := slices.BinarySearchFunc(keys, from-1, down)
		return keys[i:max(i, min(i+n, j))], nil
	}
}

// few is how many keys are sorted without a second thought.
var few = 4096

// Window is the source of keys that an index has in another order. If they are few,
// all of them are sorted. Else scan finds those of a window, which reaches down to
// what floor says, by looking at all rows there: what is common is found so. Only
// if that is not enough, the many below the first window are sorted, once.
func Window(scan Source, floor func(from, below int64) (int64, error), index func(below int64, n int) ([]int64, error)) Source {
	asked, bottom := false, int64(0)
	var rest Source
	fetch := func(below int64, n int) error {
		keys, err := index(below, n)
		if asked = true; err == nil && len(keys) < n {
			bottom, rest = below, Of(keys)
		}
		return err
	}
	return func(from, below int64, n int) (keys []int64, err error) {
		if !asked {
			if err := fetch(below, few); err != nil {
				return nil, err
			}
		}
		for from < below && len(keys) < n {
			more := []int64(nil)
			if rest != nil && below <= bottom {
				more, err = rest(from, below, n-len(keys))
				return append(keys, more...), err
			}
			if more, err = scan(from, below, n-len(keys)); err != nil {
				return nil, err
			}
			if keys = append(keys, more...); len(keys) == n {
				break
			}
			if below, err = floor(from, below); err != nil {
				return nil, err
			}
			if rest == nil && from < below {
				if err := fetch(below, math.MaxInt); err != nil {
					return nil, err
				}
			}
		}
		return keys, nil
	}
}

// Any is the source of what is in any of the sources. The cheaper come first: those
// that follow are asked only for what would come before what these have.
func Any(sources ...Source) Source {
	if len(sources) == 1 {
		return sources[0]
	}
	return func(from, below int64, n int) (all []int64, err error) {
		for _, s := range sources {
			keys, err := s(from, below, n)
			if err != nil {
				return nil, err
			}
			all = append(all, keys...)
			slices.SortFunc(all, down)
			if all = slices.Compact(all); len(all) >= n {
				all = all[:n]
				from = all[n-1] + 1
			}
			if from >= below {
				break
			}
		}
		return all, nil
	}
}

// All is the source of what is in all of the sources, of which there must be one.
func All(sources ...Source) Source {
	if len(sources) == 1 {
		return sources[0]
	}
	cursors := make([]cursor, len(sources))
	return func(from, below int64, n int) (keys []int64, err error) {
		for i := range cursors {
			cursors[i] = cursor{source: sources[i], from: from, n: max(n/4, 16)}
		}
		for k, agree := below-1, 0; ; {
			for i := range cursors {
				at, found, err := cursors[i].seek(k)
				if err != nil || !found {
					return keys, err
				}
				if agree++; at != k {
					k, agree = at, 1
				}
				if agree < len(cursors) {
					continue
				}
				if keys = append(keys, k); len(keys) == n {
					return keys, nil
				}
				k, agree = k-1, 0
			}
		}
	}
}

// most is how many keys a cursor reads at a time, in the end.
const most = 8192

// cursor goes down a source, and reads ahead the more the longer it goes.
type cursor struct {
	source Source
	from   int64
	keys   []int64
	ended  bool // after keys there are no more
	n      int
}

// seek finds the highest key that is not above k.
func (c *cursor) seek(k int64) (at int64, found bool, err error) {
	i, _ := slices.BinarySearchFunc(c.keys, k, down)
	if c.keys = c.keys[i:]; len(c.keys) == 0 && !c.ended {
		if c.keys, err = c.source(c.from, k+1, c.n); err != nil {
			return 0, false, err
		}
		c.ended = len(c.keys) < c.n
		c.n = min(4*c.n, most)
	}
	if len(c.keys) == 0 {
		return 0, false, nil
	}
	return c.keys[0], true, nil
}

func down(a, b int64) int {
	switch {
	case a > b:
		return -1
	case a < b:
		return 1
	}
	return 0
}
