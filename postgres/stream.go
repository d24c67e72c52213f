package postgres

import (
	"context"

	"github.com/bide-dev/bide"
)

const chunksOf = `SELECT k, path, name, attempt, data, at FROM bide.chunk WHERE run = $1 AND k > $2 ORDER BY k LIMIT $3`

// Chunks implements [bide.Store].
func (s *Store) Chunks(ctx context.Context, run string, after int64, limit int) (chunks []bide.Chunk, err error) {
	f, err := s.readRow(ctx, run)
	if err != nil {
		return nil, err
	}
	err = s.again(ctx, func(ctx context.Context) error {
		chunks = nil
		rows, err := s.pool.Query(ctx, s.sql(chunksOf), f.k, after, limitOf(limit))
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var c bide.Chunk
			var at int64
			if err := rows.Scan(&c.Seq, &c.Path, &c.Name, &c.Attempt, &c.Data, &at); err != nil {
				return err
			}
			c.At = clock(at)
			chunks = append(chunks, c)
		}
		return rows.Err()
	})
	return chunks, err
}
