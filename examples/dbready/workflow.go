package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bide-dev/bide"
)

// Wanted says who waits, and for what.
type Wanted struct {
	Service   string `json:"service"`
	Migration int    `json:"migration"`
}

// status is what the database says of itself.
type status struct {
	Migration int `json:"migration"`
}

// errPassword is an answer, and a lasting one: who has it stops.
var errPassword = errors.New("the database knows another password")

func init() { bide.RegisterError(errPassword) }

func newWorkflow(db *database) *bide.Workflow[Wanted, status] {
	return bide.Define("dbready", db.ready)
}

// ready waits until the database takes connections and has been migrated, then
// begins to use it.
func (db *database) ready(ctx bide.Context, w Wanted) (status, error) {
	bide.Progress(ctx, 0, w.Service+" waits for the database")
	s, err := db.await(ctx, w.Migration)
	if err != nil {
		return s, err
	}
	bide.Progress(ctx, 90, w.Service+" starts")
	err = bide.Do(ctx, "start", func(ctx context.Context) error { return db.use(ctx, w.Service) })
	return s, err
}

// await asks every two seconds. That nobody listens yet, or that an answer does not
// come, is no end; only when it has been so for many checks on end. All services
// that wait for this database share one breaker: while it is down, one of them
// looks now and then, for all.
func (db *database) await(ctx bide.Context, migration int) (status, error) {
	return bide.Poll(ctx, "database",
		func(ctx context.Context) (status, error) {
			s, err := db.status(ctx)
			switch {
			case errors.Is(err, errPassword):
				err = bide.Permanent(err)
			case err == nil:
				bide.Progress(ctx, 80*float64(s.Migration)/float64(migration), fmt.Sprintf("migration %d of %d", s.Migration, migration))
			}
			return s, err
		},
		func(s status) bool { return s.Migration >= migration },
		bide.Every(2*time.Second),
		bide.AttemptTimeout(time.Second),
		bide.MaxConsecutiveErrors(30),
		bide.Breaker{Name: "database", Cooldown: 5 * time.Second, MaxCooldown: 20 * time.Second},
		bide.Timeout(time.Hour))
}
