package postgres

import (
	"context"
	"net"

	"github.com/jackc/pgx/v5"
)

// Die ends the store without a word, as the death of its process would.
func (s *Store) Die() {
	s.w.dead.Store(true)
	_ = s.Close()
}

// Dial has the store connect through a network of the test's.
func Dial(f func(ctx context.Context, network, addr string) (net.Conn, error)) Option {
	return func(c *config) { c.dial = f }
}

// Once is what [TxStep] does in an attempt.
func (s *Store) Once(ctx context.Context, key string, do func(pgx.Tx) ([]byte, error), recall func([]byte) error) error {
	return s.once(ctx, key, do, recall)
}
