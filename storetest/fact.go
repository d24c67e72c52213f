package storetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/bide-dev/bide"
)

const kind = "kind"

func fact(key string, version int64, value string) bide.Fact {
	return bide.Fact{Kind: kind, Key: key, Version: version, Value: json.RawMessage(value)}
}

// change commits facts alone.
func (k *kit) change(facts ...bide.Fact) error {
	return k.s.Commit(k.ctx(), bide.Lease{}, bide.Batch{Facts: facts})
}

// facts reads facts by key.
func (k *kit) facts(kind string, keys ...string) map[string]bide.Fact {
	k.Helper()
	list, err := k.s.Facts(k.ctx(), kind, keys...)
	k.ok(err)
	all := map[string]bide.Fact{}
	for _, f := range list {
		if f.Kind != kind || f.Version <= 0 || all[f.Key].Kind != "" {
			k.Errorf("read %+v among the facts of kind %q, with %d before it", f, kind, len(all))
		}
		all[f.Key] = f
	}
	return all
}

// fact reads one fact, or zero if it is not there.
func (k *kit) fact(key string) bide.Fact { k.Helper(); return k.facts(kind, key)[key] }

// factIs checks a fact's value, "" for none, and returns its version.
func (k *kit) factIs(key, want string) int64 {
	k.Helper()
	f := k.fact(key)
	equal(k, "value of "+key, string(f.Value), want)
	return f.Version
}

var factCases = []testCase{
	{name: "fact/create", protects: "of those who would be the first with a fact one is, and it stays as that one wrote it",
		run: func(k *kit) {
			k.factIs("a", "")
			k.is(k.change(fact("a", 1, `1`)), bide.ErrFactChanged)
			k.ok(k.change(fact("a", 0, `{ "n": 9007199254740993 }`)))
			k.is(k.change(fact("a", 0, `2`)), bide.ErrFactChanged)
			k.factIs("a", `{ "n": 9007199254740993 }`)
			k.ok(k.change(fact("b", 0, `2`)))
		}},
	{name: "fact/swap", protects: "a change is made only by one who knew the newest version; each version is above all before",
		run: func(k *kit) {
			k.ok(k.change(fact("a", 0, `1`), fact("other", 0, `1`)))
			old := k.factIs("a", `1`)
			k.ok(k.change(fact("a", old, `2`)))
			v := k.factIs("a", `2`)
			if other := k.factIs("other", `1`); v <= old || v <= other {
				k.Errorf("version %d after %d and, of another fact, %d", v, old, other)
			}
			for _, wrong := range []int64{0, old, v + 1, v - 1} {
				k.is(k.change(fact("a", wrong, `3`)), bide.ErrFactChanged)
			}
			equal(k, "version after refusals", k.factIs("a", `2`), v)
			k.ok(k.change(fact("a", v, `2`))) // the same value is a change too
			k.is(k.change(fact("a", v, `4`)), bide.ErrFactChanged)
		}},
	{name: "fact/any-version", protects: "one who does not care for what was there is never refused",
		run: func(k *kit) {
			for i := range 3 {
				k.ok(k.change(fact("a", bide.AnyVersion, strconv.Itoa(i))))
				k.factIs("a", strconv.Itoa(i))
			}
			k.ok(k.change(fact("a", bide.AnyVersion, ``)))
			k.ok(k.change(fact("a", bide.AnyVersion, ``))) // there is none
			k.factIs("a", "")
		}},
	{name: "fact/remove", protects: "a fact can be removed, by the same rule; its versions do not come again",
		run: func(k *kit) {
			k.ok(k.change(fact("a", 0, `1`), fact("b", 0, `1`)))
			v := k.factIs("a", `1`)
			k.is(k.change(fact("a", v+100, ``)), bide.ErrFactChanged)
			k.factIs("a", `1`)
			k.ok(k.change(fact("a", v, ``)))
			k.factIs("a", "")
			k.factIs("b", `1`)
			k.is(k.change(fact("a", v, `2`)), bide.ErrFactChanged)
			k.ok(k.change(fact("a", 0, `2`)))
			if again := k.factIs("a", `2`); again <= v {
				k.Errorf("version %d of the fact that came again, %d before it was removed", again, v)
			}
			k.ok(k.change(fact("c", 0, ``))) // to make sure that there is none
		}},
	{name: "fact/read", protects: "facts are read by kind, all or those asked for; one that is not there is left out and no error",
		run: func(k *kit) {
			equal(k, "facts of a kind that nobody knows", len(k.facts(kind)), 0)
			strange := []string{" ", "A", `it's "q" <&> %_`, "ключ", "a\x00b", strings.Repeat("long", 500)}
			for i, key := range append(strange, "a") {
				k.ok(k.change(fact(key, 0, strconv.Itoa(i)), bide.Fact{Kind: "Kind", Key: key, Value: json.RawMessage(`"other"`)}))
			}
			for i, key := range strange {
				k.factIs(key, strconv.Itoa(i))
			}
			keys := slices.Sorted(maps.Keys(k.facts(kind)))
			equal(k, "all of the kind", keys, slices.Sorted(slices.Values(append(strange, "a"))))
			equal(k, "those asked for", slices.Sorted(maps.Keys(k.facts(kind, "none", "a", "A", "nobody", "a"))), []string{"A", "a"})
			equal(k, "of the other kind", string(k.facts("Kind", "a")["a"].Value), `"other"`)
			equal(k, "of no kind known", len(k.facts("kin", "a")), 0)
		}},
	{name: "fact/expiry", protects: "a fact that has expired is not there: not read, and free for the next, at its time and not before",
		run: func(k *kit) {
			f := fact("a", 0, `1`)
			f.ExpiresAt = now().Add(time.Minute)
			lasts := fact("lasts", 0, `1`)
			k.ok(k.change(f, lasts))
			time.Sleep(time.Minute - time.Microsecond)
			v := k.factIs("a", `1`)
			sameTime(k, "end", k.fact("a").ExpiresAt, f.ExpiresAt)
			equal(k, "no end", k.fact("lasts").ExpiresAt.IsZero(), true)
			k.is(k.change(f), bide.ErrFactChanged)
			time.Sleep(time.Microsecond)
			k.factIs("a", "")
			equal(k, "facts left", slices.Collect(maps.Keys(k.facts(kind))), []string{"lasts"})
			f.Version = v
			k.is(k.change(f), bide.ErrFactChanged)
			f.Version, f.ExpiresAt = 0, now().Add(time.Minute)
			k.ok(k.change(f))
			f.Version, f.ExpiresAt = k.factIs("a", `1`), now().Add(time.Hour)
			k.ok(k.change(f)) // a longer life
			time.Sleep(2 * time.Minute)
			f.Version, f.ExpiresAt = k.factIs("a", `1`), time.Time{}
			k.ok(k.change(f)) // for ever
			time.Sleep(1000 * time.Hour)
			f.Version, f.ExpiresAt = k.factIs("a", `1`), time.Unix(0, 0)
			k.ok(k.change(f)) // over already
			k.factIs("a", "")
			k.factIs("lasts", `1`)
		}},
	{name: "fact/all-or-none", protects: "facts of one batch change together: one that is refused keeps the others from changing",
		run: func(k *kit) {
			k.ok(k.change(fact("a", 0, `1`), fact("b", 0, `1`)))
			a, b := k.factIs("a", `1`), k.factIs("b", `1`)
			gone := fact("gone", bide.AnyVersion, ``)
			k.ok(k.change(fact("gone", 0, `1`)))
			k.is(k.change(fact("new", 0, `2`), gone, fact("a", a, `2`), fact("b", b+100, `2`)), bide.ErrFactChanged)
			k.factIs("new", "")
			k.factIs("gone", `1`)
			k.factIs("a", `1`)
			k.ok(k.change(fact("new", 0, `2`), gone, fact("a", a, `2`), fact("b", b, `2`)))
			k.factIs("new", `2`)
			k.factIs("gone", "")
			k.factIs("b", `2`)
		}},
	{name: "fact/with-a-turn", protects: "a turn's records and facts are kept both or neither; a turn that is refused for a fact goes on under its lease",
		run: func(k *kit) {
			c := k.begin("a")
			k.signal("a", message("m", `1`))
			in := k.news(c.Lease).Inbox
			b := full("a")
			b.Consumed, b.Seen, b.Facts = []int64{in[0].Seq}, in[0].Seq, []bide.Fact{fact("f", 0, `1`), fact("g", 5, `1`)}
			before := k.get("a")
			for _, b.Next = range []bide.Next{nil, bide.Parked{}, bide.Done{}, bide.Continued{Input: json.RawMessage(`2`)}} {
				k.is(k.s.Commit(k.ctx(), c.Lease, b), bide.ErrFactChanged)
			}
			sameJSON(k, "the run after refusals", k.get("a"), before)
			equal(k, "records", len(k.history("a")), 0)
			equal(k, "children", len(k.query(bide.Query{Parent: "a"})), 0)
			k.factIs("f", "")
			k.idle(asks("another", "a"), time.Minute) // the lease is held on
			b.Facts, b.Next = b.Facts[:1], bide.Parked{}
			k.commit(c, b)
			k.factIs("f", `1`)
			c = k.turn("a:child")
			k.commit(c, bide.Batch{Next: bide.Done{}})
			c = k.turn("a")
			equal(k, "records", len(c.History), len(b.Records))
			equal(k, "inbox", names(c.Inbox), []string{fmt.Sprintf("op %d", bide.OpChildEnded)})
			k.commit(c, bide.Batch{Seen: lastSeq(c.Inbox), Facts: []bide.Fact{fact("f", bide.AnyVersion, `2`)}, Next: bide.Done{}})
			k.is(k.s.Commit(k.ctx(), c.Lease, bide.Batch{Facts: []bide.Fact{fact("f", bide.AnyVersion, `3`)}}), bide.ErrLeaseLost)
			k.factIs("f", `2`)
		}},
	{name: "fact/invalid", protects: "what cannot be a fact is refused and named, and nothing of its batch is written",
		run: func(k *kit) {
			c := k.begin("a")
			large := `"` + strings.Repeat("x", bide.MaxPayload-2) + `"`
			k.ok(k.change(fact("largest", 0, large)))
			equal(k, "size", len(k.fact("largest").Value), bide.MaxPayload)
			good := fact("good", 0, `1`)
			for _, bad := range [][]bide.Fact{{good, {Key: "a", Value: good.Value}}, {good, {Kind: kind, Value: good.Value}},
				{good, good}, {good, fact("a", -2, `1`)}, {fact("a", 0, large+" ")}} {
				for _, l := range []bide.Lease{{}, c.Lease} {
					err := k.s.Commit(k.ctx(), l, bide.Batch{Facts: bad})
					if len(bad) == 1 {
						isAs[*bide.PayloadTooLargeError](k, err)
					} else {
						isAs[*bide.InvalidError](k, err)
					}
				}
			}
			for _, b := range []bide.Batch{{Records: []bide.Record{step("1", "s")}}, {Next: bide.Parked{}}, {Consumed: []int64{1}}, {Waiting: &[]bide.Wait{}},
				{Progress: &bide.ProgressState{}}, {Start: []bide.NewRun{run("b")}}, {Cancel: []string{"a"}}, {Seen: 1}, {Started: now()}, {Values: full("a").Values}} {
				b.Facts = []bide.Fact{good}
				isAs[*bide.InvalidError](k, k.s.Commit(k.ctx(), bide.Lease{}, b))
			}
			isAs[*bide.InvalidError](k, k.s.Commit(k.ctx(), bide.Lease{Worker: c.Worker}, bide.Batch{Facts: []bide.Fact{good}}))
			k.factIs("good", "")
			_, err := k.s.Facts(k.ctx(), "")
			isAs[*bide.InvalidError](k, err)
			_, err = k.s.Facts(k.ctx(), kind, "good", "")
			isAs[*bide.InvalidError](k, err)
			k.commit(c, bide.Batch{Facts: []bide.Fact{good}})
		}},
	{name: "fact/at-once", protects: "of many who change a fact at the same moment one wins each version, so that a counter counts right",
		run: func(k *kit) {
			const hands, each = 8, 12
			var mu sync.Mutex
			wins := map[int64]int{}
			var wg sync.WaitGroup
			for range hands {
				wg.Go(func() {
					for n := 0; n < each; {
						list, err := k.s.Facts(k.ctx(), kind, "counter")
						f, count := fact("counter", 0, `0`), 0
						if len(list) > 0 {
							f = list[0]
							count, err = strconv.Atoi(string(f.Value))
						}
						if err != nil {
							k.Errorf("reading the counter: %v", err)
							return
						}
						f.Value = json.RawMessage(strconv.Itoa(count + 1))
						switch err := k.change(f); {
						case err == nil:
							n++
							mu.Lock()
							wins[f.Version]++
							mu.Unlock()
						case !errors.Is(err, bide.ErrFactChanged):
							k.Errorf("counting: %v", err)
							return
						}
					}
				})
			}
			wg.Wait()
			k.factIs("counter", strconv.Itoa(hands*each))
			equal(k, "versions that were changed", len(wins), hands*each)
		}},
	{name: "fact/among-commits", protects: "a refused change disturbs no commit that comes at the same moment",
		run: func(k *kit) {
			const each = 30
			k.ok(k.change(fact("f", 0, `1`)))
			a, b := k.begin("a"), k.begin("b")
			var wg sync.WaitGroup
			for i := range each {
				s := []bide.Record{step(strconv.Itoa(i), "s")}
				for what, commit := range map[string]func() error{
					"commit": func() error { return k.s.Commit(k.ctx(), a.Lease, bide.Batch{Records: s}) },
					"fact":   func() error { return k.change(fact(strconv.Itoa(i), 0, `1`)) },
					"signal": func() error { _, err := k.s.Signal(k.ctx(), "a", message("m", `1`)); return err },
				} {
					wg.Go(func() {
						if err := commit(); err != nil {
							k.Errorf("%s: %v", what, err)
						}
					})
				}
				wg.Go(func() { k.is(k.change(fact(fmt.Sprint("never", i), 0, `1`), fact("f", 0, `2`)), bide.ErrFactChanged) })
				wg.Go(func() {
					k.is(k.s.Commit(k.ctx(), b.Lease, bide.Batch{Records: s, Facts: []bide.Fact{fact("f", 0, `2`)}, Next: bide.Done{}}), bide.ErrFactChanged)
				})
			}
			wg.Wait()
			equal(k, "records", len(k.history("a")), each)
			equal(k, "records of refused turns", len(k.history("b")), 0)
			equal(k, "facts", len(k.facts(kind)), each+1)
			k.factIs("f", `1`)
			k.commit(b, bide.Batch{Next: bide.Done{}})
		}},
	{name: "fact/reopen", protects: "facts outlive the process with their versions and their ends, and versions go on from there", lasting: true,
		run: func(k *kit) {
			f := fact("ends", 0, `1`)
			f.ExpiresAt = now().Add(time.Hour)
			k.ok(k.change(f, fact("a", 0, `1`), fact("removed", 0, `1`)))
			k.ok(k.change(fact("removed", bide.AnyVersion, ``)))
			before := k.facts(kind)
			k.reopen()
			equal(k, "facts", k.facts(kind), before)
			k.is(k.change(fact("a", 0, `2`)), bide.ErrFactChanged)
			k.ok(k.change(fact("a", before["a"].Version, `2`)))
			if v := k.factIs("a", `2`); v <= before["ends"].Version {
				k.Errorf("version %d after %d", v, before["ends"].Version)
			}
			time.Sleep(time.Hour)
			k.reopen()
			k.factIs("ends", "")
			k.ok(k.change(fact("ends", 0, `2`)))
		}},
	{name: "fact/any-order", protects: "whatever is done in whatever order, facts are as the rule says",
		run: func(k *kit) {
			for seed := range uint64(4) {
				k.playFacts(rand.New(rand.NewPCG(seed, 0)), fmt.Sprint("seed ", seed))
			}
		}},
}

// playFacts changes facts of a kind at random and compares them with a model.
func (k *kit) playFacts(rng *rand.Rand, kind string) {
	k.Helper()
	model, newest := map[string]bide.Fact{}, int64(0)
	for i := range 150 {
		time.Sleep(time.Duration(rng.IntN(2000)) * time.Millisecond)
		maps.DeleteFunc(model, func(_ string, f bide.Fact) bool { return !f.ExpiresAt.IsZero() && !f.ExpiresAt.After(now()) })
		var facts []bide.Fact
		fits := true
		for _, n := range rng.Perm(5)[:1+rng.IntN(3)] {
			f := bide.Fact{Kind: kind, Key: strconv.Itoa(n)}
			has := model[f.Key].Version
			f.Version = []int64{has, has, has, has, bide.AnyVersion, 0, has + 1}[rng.IntN(7)]
			fits = fits && (f.Version == has || f.Version == bide.AnyVersion)
			if rng.IntN(4) > 0 {
				f.Value = json.RawMessage(strconv.Itoa(i))
			}
			if rng.IntN(2) > 0 {
				f.ExpiresAt = now().Add(time.Duration(rng.IntN(10)) * time.Second)
			}
			facts = append(facts, f)
		}
		err := k.change(facts...)
		if fits != (err == nil) || err != nil && !errors.Is(err, bide.ErrFactChanged) {
			k.Fatalf("%s, change %d: %+v gave %v; there is %+v", kind, i, facts, err, model)
		}
		got := k.facts(kind)
		for _, f := range facts {
			if err != nil {
				break
			}
			delete(model, f.Key)
			if f.Value != nil && (f.ExpiresAt.IsZero() || f.ExpiresAt.After(now())) {
				if f.Version = got[f.Key].Version; f.Version <= newest {
					k.Errorf("%s, change %d: version %d after %d", kind, i, f.Version, newest)
				}
				model[f.Key] = f
			}
		}
		for _, f := range model {
			newest = max(newest, f.Version)
		}
		if equal(k, fmt.Sprintf("%s, facts after change %d", kind, i), got, model); k.Failed() {
			return
		}
	}
}
