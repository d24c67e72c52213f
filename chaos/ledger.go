package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/postgres"
)

// What is done in the store's own database: rows that are there exactly once, and
// runs that are there if a row is.

const ledgerSQL = `CREATE SCHEMA chaos; CREATE TABLE chaos.ledger (job text, call text); CREATE TABLE chaos.orders (job text);
	CREATE TABLE chaos.pulse AS SELECT 0 AS n`

// entry is a row of the ledger.
type entry struct{ Job, Call string }

// txStep has a clerk, in a process that has the database at hand, enter something.
func (p *part) txStep() error {
	got, err := bide.Child(p.ctx, p.cast.clerk, p.sub(""), bide.Queue(ledgers))
	p.tell(p.place, got.last())
	return err
}

// enter is the clerk.
func (c *cast) enter(ctx bide.Context, in job) (story, error) {
	p := &part{cast: c, ctx: ctx, job: in, story: in.Told, place: clerkName}
	at := p.story.last()
	got, err := postgres.TxStep(ctx, c.store, clerkName, func(ctx context.Context, tx pgx.Tx) (string, error) {
		return p.act(ctx, event{Place: clerkName, Prev: at}, func(ctx context.Context, e event) error {
			if _, err := tx.Exec(ctx, `INSERT INTO chaos.ledger VALUES ($1, $2)`, in.ID, e.Call); err != nil {
				return err
			}
			if e.Attempt == 1 && p.within(0, 3) == 0 {
				return errors.New("not yet")
			}
			return nil
		})
	}, soon)
	p.tell(clerkName, got)
	return p.story, err
}

// order starts a run in a transaction with a row of its own, or thinks better of it.
// Where it cannot know what became of the transaction, the row tells.
func (p *patrons) order(o *outcome, rng *rand.Rand) (id string) {
	o.Ordered = true
	drop := rng.IntN(3) == 0
	n, err := p.tour.NewRun(o.Job, bide.ID(orderID(o.Job)), bide.FirstSignal("go", "go"))
	if err != nil {
		panic(err)
	}
	for p.ctx.Err() == nil {
		err := p.inTx(func(ctx context.Context, tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, `INSERT INTO chaos.orders VALUES ($1)`, o.Job.ID); err != nil {
				return err
			}
			c, err := p.c.store.StartTx(ctx, tx, n)
			if err == nil && drop {
				err = errDropped
			}
			return errors.Join(err, c.Err)
		})
		if err == nil {
			return n.ID
		}
		rows := p.rows(o.Job)
		if rows > 0 {
			return n.ID
		}
		if errors.Is(err, errDropped) {
			return ""
		}
		_ = pause(p.ctx, 200*time.Millisecond)
	}
	return ""
}

var errDropped = errors.New("dropped")

func orderID(j job) string { return "order-" + j.ID }

// inTx does it in a transaction on a connection of its own, which faults hit.
func (p *patrons) inTx(do func(context.Context, pgx.Tx) error) error {
	ctx, cancel := context.WithTimeout(p.ctx, 3*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, p.c.dsn)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error { return do(ctx, tx) })
}

// rows is how often the order is there.
func (p *patrons) rows(j job) (n int) {
	p.surely(func() error {
		return p.query(p.ctx, func(ctx context.Context, c *pgx.Conn) error {
			return c.QueryRow(ctx, `SELECT count(*) FROM chaos.orders WHERE job = $1`, j.ID).Scan(&n)
		})
	})
	return n
}

// entries reads the ledger.
func (p *patrons) entries(ctx context.Context) (all []entry, err error) {
	err = p.query(ctx, func(ctx context.Context, c *pgx.Conn) error {
		rows, err := c.Query(ctx, `SELECT job, call FROM chaos.ledger`)
		if err == nil {
			all, err = pgx.CollectRows(rows, pgx.RowToStructByPos[entry])
		}
		return err
	})
	return all, err
}

// query asks the database past all faults but its own.
func (p *patrons) query(ctx context.Context, do func(context.Context, *pgx.Conn) error) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, p.c.db.DSN)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	return do(ctx, conn)
}
