package sqlite

import (
	"context"
	"time"

	"zombiezen.com/go/sqlite"

	"github.com/bide-dev/bide"
)

// Facts implements [bide.Store].
func (s *Store) Facts(ctx context.Context, kind string, keys ...string) (facts []bide.Fact, err error) {
	if err := bide.CheckFactNames(kind, keys...); err != nil {
		return nil, err
	}
	err = s.read(ctx, func(r *reader) error {
		st := r.facts
		if len(keys) > 0 {
			st = r.factsOf
			st.BindText(3, string(object(keys)))
		}
		defer st.Reset()
		st.BindText(1, kind)
		st.BindInt64(2, s.line.Now().UnixMicro())
		for {
			more, err := step(st)
			if err != nil || !more {
				return err
			}
			f := bide.Fact{Kind: kind, Key: st.ColumnText(0), Version: st.ColumnInt64(1), Value: bytesOf(st, 2)}
			if !st.ColumnIsNull(3) {
				f.ExpiresAt = time.UnixMicro(st.ColumnInt64(3)).UTC()
			}
			facts = append(facts, f)
		}
	})
	return facts, err
}

// changeFacts writes the facts of an op, or has it refused: all versions are
// compared before anything is written, so that a refusal leaves nothing to undo.
func (w *writer) changeFacts(o *op) error {
	facts := o.batch.Facts
	for i := range facts {
		if same, err := w.sameFact(&facts[i]); err != nil {
			return err
		} else if !same {
			o.err = bide.ErrFactChanged
			return nil
		}
	}
	if err := w.begin(); err != nil {
		return err
	}
	for i := range facts {
		if err := w.putFact(&facts[i]); err != nil {
			return err
		}
	}
	// Twice as many as came: the table does not grow with what nobody reads again.
	w.st.oldFacts.BindInt64(1, w.now)
	w.st.oldFacts.BindInt64(2, int64(2*len(facts)))
	return w.exec(w.st.oldFacts)
}

// sameFact reports whether the stored fact is at the version asked for.
func (w *writer) sameFact(f *bide.Fact) (bool, error) {
	if f.Version == bide.AnyVersion {
		return true, nil
	}
	st, has := w.st.factVer, int64(0)
	st.BindText(1, f.Kind)
	st.BindText(2, f.Key)
	st.BindInt64(3, w.now)
	_, err := w.one(st, func(s *sqlite.Stmt) { has = s.ColumnInt64(0) })
	return has == f.Version, err
}

func (w *writer) putFact(f *bide.Fact) error {
	st := w.st.setFact
	if len(f.Value) == 0 {
		st = w.st.dropFact
	} else {
		ver, err := w.next()
		if err != nil {
			return err
		}
		st.BindInt64(3, ver)
		st.BindBytes(4, f.Value)
		st.BindNull(5)
		if !f.ExpiresAt.IsZero() {
			st.BindInt64(5, f.ExpiresAt.UnixMicro())
		}
	}
	st.BindText(1, f.Kind)
	st.BindText(2, f.Key)
	return w.exec(st)
}
