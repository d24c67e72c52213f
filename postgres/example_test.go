package postgres_test

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/postgres"
)

var ship = bide.Define("ship", func(ctx bide.Context, order string) (string, error) { return "shipped " + order, nil })

// An order and the run that ships it exist both or neither.
func ExampleStore_StartTx() {
	_ = func(ctx context.Context, store *postgres.Store, conn *pgx.Conn, order string) error {
		run, err := ship.NewRun(order, bide.ID("ship-"+order))
		if err != nil {
			return err
		}
		return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, `INSERT INTO orders (id) VALUES ($1)`, order); err != nil {
				return err
			}
			started, err := store.StartTx(ctx, tx, run)
			if err != nil {
				return err
			}
			return started.Err // the id is taken
		})
	}
}
