package bide

import (
	"fmt"
	"reflect"
	"slices"
)

// CheckFactNames says what is wrong with the names of facts, for [Store.Facts].
func CheckFactNames(kind string, keys ...string) error {
	if kind == "" {
		return &InvalidError{Field: "fact kind", Reason: "is empty"}
	}
	if slices.Contains(keys, "") {
		return &InvalidError{Field: "fact key", Reason: "is empty"}
	}
	return nil
}

// CheckFacts says what is wrong with the facts of a batch, whatever the store has,
// for [Store.Commit].
func CheckFacts(l Lease, b Batch) error {
	facts := b.Facts
	if b.Facts = nil; l.Run == "" && (l != (Lease{}) || !reflect.ValueOf(b).IsZero()) {
		return &InvalidError{Field: "lease", Reason: "is of no run: only facts can be committed so, with Lease{} and nothing else in the batch"}
	}
	type name struct{ kind, key string }
	seen := make(map[name]bool, len(facts))
	for _, f := range facts {
		n := name{f.Kind, f.Key}
		what := fmt.Sprintf("fact %q of kind %q", f.Key, f.Kind)
		if err := CheckFactNames(f.Kind, f.Key); err != nil {
			return err
		}
		switch {
		case seen[n]:
			return &InvalidError{Field: what, Reason: "is in the batch twice; put the last change only"}
		case f.Version < AnyVersion:
			return &InvalidError{Field: what, Reason: fmt.Sprintf("has version %d; use one that was read, 0 or bide.AnyVersion", f.Version)}
		case len(f.Value) > MaxPayload:
			return &PayloadTooLargeError{Field: what, Size: len(f.Value), Limit: MaxPayload}
		}
		seen[n] = true
	}
	return nil
}
