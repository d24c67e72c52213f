package sqlite

import (
	"context"

	"github.com/bide-dev/bide"
)

// Chunks implements [bide.Store].
func (s *Store) Chunks(ctx context.Context, run string, after int64, limit int) (chunks []bide.Chunk, err error) {
	if limit <= 0 {
		limit = -1 // SQLite: no limit
	}
	err = s.read(ctx, func(r *reader) error {
		k, err := r.resolve(s, run)
		if err != nil {
			return err
		}
		if _, err := r.one(s, k); err != nil {
			return err
		}
		st := r.chunks
		defer st.Reset()
		st.BindInt64(1, k)
		st.BindInt64(2, after)
		st.BindInt64(3, int64(limit))
		for {
			more, err := step(st)
			if err != nil || !more {
				return err
			}
			chunks = append(chunks, bide.Chunk{Seq: st.ColumnInt64(0), Path: st.ColumnText(1), Name: st.ColumnText(2),
				Attempt: st.ColumnInt(3), Data: bytesOf(st, 4), At: clock(st.ColumnInt64(5))})
		}
	})
	return chunks, err
}

func (w *writer) addChunk(run int64, c *bide.Chunk) error {
	k, err := w.next()
	if err != nil {
		return err
	}
	st := w.st.addChunk
	st.BindInt64(1, k)
	st.BindInt64(2, run)
	st.BindText(3, c.Path)
	st.BindText(4, c.Name)
	st.BindInt64(5, int64(c.Attempt))
	blob(st, 6, c.Data)
	st.BindInt64(7, c.At.UnixMicro())
	return w.exec(st)
}
