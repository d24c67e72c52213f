// Package postgres keeps runs in a schema of a Postgres database (14 or newer),
// shared by any number of processes. For most uses you need [Open]:
//
//	store, err := postgres.Open(ctx, "postgres://localhost/app")
//
// The commits of the many goroutines of a process share a transaction and a round
// trip on one connection; a run in the hand of a process costs it no look at the
// run's row. See ARCHITECTURE.md for how processes hand runs to one another.
package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/internal/group"
	"github.com/bide-dev/bide/internal/timeline"
)

// Store is a bide.Store in a Postgres schema.
type Store struct {
	config
	dsn     *pgx.ConnConfig // of the writer's connection and the listener's
	salt    uint64
	line    atomic.Pointer[timeline.Line] // the store's time
	group   *group.Group[*op]
	pool    *pgxpool.Pool // for those who only read
	steps   *pgxpool.Pool // for transactions of [TxStep]
	closed  chan struct{}
	closing sync.Once
	texts   sync.Map // statements for the schema, by those for "bide"
	meter   meter
	ear     listener
	me      atomic.Int64 // this process's row in the table of members
	started atomic.Int64 // runs, by StartTx
	lapse   lapse
	stirred atomic.Int64 // when something moved, in nanoseconds since the writer's start

	w writer // used by the group's goroutine only

	mu       sync.Mutex
	live     map[string]*lease // by run id
	watchers map[string][]*watcher
	workers  map[string]*worker
	watching atomic.Int64 // watchers that want more than ends
}

// Option is an option of [Open].
type Option func(*config)

type config struct {
	schema     string
	noNotify   bool
	unprepared bool
	alone      bool
	dial       pgconn.DialFunc // of tests
	quiet      time.Duration   // after so long without a word the listener asks whether it is heard
}

// Schema is the schema that the tables are in; default "bide". It is made if
// it is not there.
func Schema(name string) Option { return func(c *config) { c.schema = name } }

// NoNotify does without LISTEN and NOTIFY, and without any state of a session, as
// PgBouncer needs it when it pools transactions: then what other processes do is
// seen by looking, twice a second while something moves, and after a minute of nothing
// every five seconds.
func NoNotify() Option { return func(c *config) { c.noNotify, c.unprepared = true, true } }

// Alone is for tests in virtual time: no other process has the store open, so that
// nothing is listened to, which would hold the time up, and the store goes by its
// process's clock in place of the database's.
func Alone() Option { return func(c *config) { c.noNotify, c.alone = true, true } }

// Open connects to the database and brings the schema up to date. dsn is a URL
// or a list of key=value pairs, as libpq has them; what it leaves out is taken
// from PGHOST and the like. Its parameters bide_schema=NAME and bide_notify=off are
// [Schema] and [NoNotify], for programs that are given no more than a dsn. Open
// returns a [SchemaError] when a newer bide made the schema.
func Open(ctx context.Context, dsn string, opts ...Option) (*Store, error) {
	cfg, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, &bide.InvalidError{Field: "dsn", Reason: "cannot be read: " + err.Error()}
	}
	c := config{schema: home, quiet: 20 * time.Second}
	if err := c.take(cfg.ConnConfig.RuntimeParams); err != nil {
		return nil, err
	}
	for _, o := range opts {
		o(&c)
	}
	if c.schema == "" || strings.ContainsRune(c.schema, 0) || len(c.schema) > 63 {
		return nil, &bide.InvalidError{Field: "schema", Reason: fmt.Sprintf("%q is no name: it has 1 to 63 bytes", c.schema)}
	}
	if !strings.Contains(dsn, "pool_max_conns") {
		cfg.MaxConns = readConns
	}
	if cfg.PingTimeout == 0 { // of a connection that was idle: see readFor
		cfg.PingTimeout = time.Second
	}
	s := &Store{config: c, closed: make(chan struct{}),
		live: map[string]*lease{}, watchers: map[string][]*watcher{}, workers: map[string]*worker{}}
	s.line.Store(timeline.Start(time.Now(), 0))
	if err := s.open(ctx, cfg); err != nil {
		_ = s.Close()
		return nil, err
	}
	return s, nil
}

const readConns = 8

// take takes the options that a dsn has for the store out of its parameters.
func (c *config) take(params map[string]string) error {
	for name, value := range params {
		switch {
		case !strings.HasPrefix(name, "bide_"):
			continue
		case name == "bide_schema":
			Schema(value)(c)
		case name == "bide_notify" && value == "off":
			NoNotify()(c)
		case name == "bide_notify" && value == "on":
		case name == "bide_notify":
			return &bide.InvalidError{Field: "dsn", Reason: fmt.Sprintf("has %s=%q; it is on or off", name, value)}
		default:
			return &bide.InvalidError{Field: "dsn", Reason: fmt.Sprintf("has a parameter %s that there is not; use bide_schema or bide_notify", name)}
		}
		delete(params, name)
	}
	return nil
}

func (s *Store) open(ctx context.Context, cfg *pgxpool.Config) (err error) {
	if cfg.ConnConfig.ValidateConnect == nil { // after a failover another server may be the one that takes writes
		cfg.ConnConfig.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	}
	if s.dial != nil {
		cfg.ConnConfig.DialFunc = s.dial
	}
	if s.unprepared {
		cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	}
	if cfg.ConnConfig.ConnectTimeout == 0 {
		cfg.ConnConfig.ConnectTimeout = 10 * time.Second
	}
	s.dsn = cfg.ConnConfig.Copy()
	if !s.unprepared {
		// The writer's plans are made once, maybe when the tables are empty: every one
		// is to go by an index.
		for _, setting := range []string{"enable_seqscan", "enable_hashjoin", "enable_mergejoin", "jit"} {
			s.dsn.RuntimeParams[setting] = "off"
		}
	}
	if s.pool, err = pgxpool.NewWithConfig(context.WithoutCancel(ctx), cfg); err != nil {
		return failure(err)
	}
	cfg = cfg.Copy()
	cfg.MinConns, cfg.MinIdleConns = 0, 0
	if s.steps, err = pgxpool.NewWithConfig(context.WithoutCancel(ctx), cfg); err != nil {
		return failure(err)
	}
	conn, err := pgx.ConnectConfig(ctx, s.dsn)
	if err != nil {
		return failure(err)
	}
	s.w.init(s, conn)
	if err := s.migrate(ctx, conn); err != nil {
		return err
	}
	if err := s.identify(ctx, conn); err != nil {
		return err
	}
	if err := s.w.loadRoutes(ctx); err != nil {
		return err
	}
	s.group = group.New(s.w.flush)
	return nil
}

// identify reads the schema's mark, and the database's clock.
func (s *Store) identify(ctx context.Context, conn *pgx.Conn) error {
	var salt, now int64
	err := conn.QueryRow(ctx, s.sql(`INSERT INTO bide.meta (name, value) VALUES ('salt', $1)
		ON CONFLICT (name) DO UPDATE SET name = 'salt' RETURNING value, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint`), newSalt()).Scan(&salt, &now)
	s.salt = uint64(salt)
	if !s.alone && err == nil {
		s.line.Store(timeline.Steady(time.UnixMicro(now).UTC(), 0))
	}
	return failure(err)
}

// setClock lets the store's time follow the database's clock. It never goes back:
// where that clock has, it ticks on ahead of it.
func (s *Store) setClock(db int64) {
	if s.alone || db == 0 {
		return
	}
	shows, byDB := s.line.Load().Now(), time.UnixMicro(db).UTC()
	if off := byDB.Sub(shows); off > -clockSlack && off < clockSlack {
		return
	}
	if byDB.After(shows) {
		shows = byDB
	}
	s.line.Store(timeline.Steady(shows, shows.Sub(byDB)))
}

// clockSlack is by how much the store's time may be off the database's clock.
const clockSlack = 50 * time.Millisecond

func (s *Store) now() time.Time { return s.line.Load().Now() }

// home is the schema that the statements are written for.
const home = "bide"

// sql is a statement for the store's schema.
func (s *Store) sql(text string) string {
	if s.schema == home {
		return text
	}
	if t, ok := s.texts.Load(text); ok {
		if t, ok := t.(string); ok {
			return t
		}
	}
	t := strings.ReplaceAll(text, home+".", pgx.Identifier{s.schema}.Sanitize()+".")
	s.texts.Store(text, t)
	return t
}

// Close waits for queued writes, wakes everyone who waits with
// [bide.ErrClosed], and leaves what the process holds to the others.
func (s *Store) Close() error {
	s.closing.Do(func() {
		close(s.closed)
		s.ear.stop()
		if s.group != nil {
			s.group.Close()
			s.w.stop()
		}
		s.w.hangUp()
		s.dismiss()
		for _, pool := range []*pgxpool.Pool{s.pool, s.steps} {
			if pool != nil {
				pool.Close()
			}
		}
	})
	return nil
}

// isClosed reports whether Close has begun.
func (s *Store) isClosed() bool {
	select {
	case <-s.closed:
		return true
	default:
		return false
	}
}

// do hands a write to the writer and returns when it is durable or refused.
func (s *Store) do(ctx context.Context, o *op) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.isClosed() {
		return bide.ErrClosed
	}
	if err := s.group.Do(o); err != nil {
		return bide.ErrClosed
	}
	return o.err
}

// failure gives Postgres's errors the identity that callers look for.
func failure(err error) error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		switch e.Code {
		case "53100": // disk_full
			return fmt.Errorf("%w: %w", bide.ErrStoreFull, err)
		case "22021", "22P05": // a text with a zero byte or no UTF-8
			return &bide.InvalidError{Field: "text", Reason: "cannot be kept by Postgres: names, ids, keys and labels must be UTF-8 without zero bytes"}
		}
	}
	return fmt.Errorf("postgres: %w", err)
}
