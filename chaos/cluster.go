package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/bide-dev/bide/internal/pgtest"
	"github.com/bide-dev/bide/postgres"
)

// cluster is the processes, and what lies between them.
type cluster struct {
	dir     string
	disk    string // that the database is on, "" if it cannot be filled
	lease   time.Duration
	db      *pgtest.Server
	dbMu    sync.Mutex
	witness *witness
	nodes   map[string]*node
	links   map[string]*link
	doors   []string // addresses of the servers, by links of the patrons' own
	store   *postgres.Store
	dsn     string // of the database, by a link of the patrons' own
	say     func(format string, args ...any)

	mu      sync.Mutex
	windows []window
}

// window is a time in which a fault was there.
type window struct {
	Fault    string
	Kind     string
	Node     string // that it hit, or that is at one end of the link
	Far      string // the other end
	From, To time.Time
}

// newCluster starts everything.
func newCluster(ctx context.Context, dir string, lease time.Duration, hook func(event), say func(string, ...any)) (c *cluster, err error) {
	c = &cluster{dir: dir, lease: lease, nodes: map[string]*node{}, links: map[string]*link{}, say: say}
	defer func() {
		if err != nil {
			c.close()
		}
	}()
	home := dir
	if disk := filepath.Join(dir, "disk"); os.Mkdir(disk, 0o755) == nil {
		if merr := mountDisk(disk, diskSize); merr == nil {
			c.disk, home = disk, disk
		} else {
			say("*** THE DISK IS NOT FILLED: no small disk can be mounted (%v) ***", merr)
		}
	}
	if c.db, err = pgtest.Start(home, "max_wal_size=64MB", "min_wal_size=32MB", "restart_after_crash=on"); err != nil {
		return c, err
	}
	if c.witness, err = newWitness(ctx, hook); err != nil {
		return c, err
	}
	if c.store, err = postgres.Open(ctx, c.db.DSN); err != nil {
		return c, err
	}
	if err := c.prepare(ctx); err != nil {
		return c, err
	}
	for _, n := range []struct{ name, kind string }{{"s0", "server"}, {"s1", "server"}, {"w0", "worker"}, {"w1", "worker"}, {distant, "remote"}} {
		if err := c.add(ctx, n.name, n.kind); err != nil {
			return c, err
		}
	}
	return c, nil
}

const diskSize = 400 // MB

// distant is the worker that has the store through a server, s0.
const distant = "w2"

// prepare makes the tables of the workload, and the patrons' way to them.
func (c *cluster) prepare(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, c.db.DSN)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	if _, err := conn.Exec(ctx, ledgerSQL); err != nil {
		return err
	}
	l, err := newLink(ctx, "patron-db", func() (string, string) { return "unix", c.db.Socket() })
	if err != nil {
		return err
	}
	c.links[l.name], c.dsn = l, dsnOf(l.address())
	return nil
}

func (c *cluster) add(ctx context.Context, name, kind string) error {
	n := &node{name: name, kind: kind, log: filepath.Join(c.dir, name+".log"), role: role{Kind: kind, Lease: c.lease}}
	c.nodes[name] = n
	var errs []error
	link := func(to string, target func() (string, string)) string {
		l, err := newLink(ctx, name+"-"+to, target)
		if err != nil {
			errs = append(errs, err)
			return ""
		}
		c.links[l.name] = l
		return l.address()
	}
	if kind != "server" {
		n.role.Witness = link("witness", func() (string, string) { return "tcp", c.witness.url })
	}
	if kind == "remote" {
		n.role.Server = link("s0", func() (string, string) { return "tcp", c.nodes["s0"].address() })
	} else {
		n.role.Database = link("db", func() (string, string) { return "unix", c.db.Socket() })
	}
	if kind == "server" {
		l, err := newLink(ctx, "patron-"+name, func() (string, string) { return "tcp", n.address() })
		if err != nil {
			return err
		}
		c.links[l.name] = l
		c.doors = append(c.doors, l.address())
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return n.start(ctx)
}

// scene is what faults can hit.
func (c *cluster) scene() scene {
	s := scene{lease: c.lease}
	for name := range c.nodes {
		s.nodes = append(s.nodes, name)
	}
	for name := range c.links {
		s.links = append(s.links, name)
	}
	slices.Sort(s.nodes)
	slices.Sort(s.links)
	if c.disk == "" {
		s.left = append(s.left, "full")
	}
	if !canStop {
		s.left = append(s.left, "stop")
	}
	return s
}

// storm carries the faults out, and returns when all is healed.
func (c *cluster) storm(ctx context.Context, faults []fault) error {
	began := time.Now()
	errs := make(chan error, len(faults))
	for _, f := range faults {
		go func() {
			if pause(ctx, time.Until(began.Add(f.At))) != nil {
				errs <- ctx.Err()
				return
			}
			errs <- c.suffer(ctx, f)
		}()
	}
	var all []error
	for range faults {
		all = append(all, <-errs)
	}
	return errors.Join(all...)
}

// suffer lets one fault happen, and heals it.
func (c *cluster) suffer(ctx context.Context, f fault) error {
	w := window{Fault: f.String(), Kind: f.Kind, Node: f.Target, From: time.Now()}
	c.say("%s", f)
	wait := func() { _ = pause(ctx, f.For) }
	var err error
	switch n := c.nodes[f.Target]; f.Kind {
	case "kill":
		n.kill()
		wait()
		err = n.start(ctx)
	case "stop":
		err = n.signal(stop)
		wait()
		err = errors.Join(err, n.signal(cont))
	case "skew":
		err = n.skew(f.By)
		wait()
		err = errors.Join(err, n.skew(-f.By))
	case "cut":
		l := c.links[f.Target]
		w.Node, w.Far, _ = strings.Cut(l.name, "-")
		l.set(f.Mode)
		wait()
		l.set(open)
	case "crash":
		c.dbMu.Lock()
		c.db.Crash()
		wait()
		err = c.db.Restart()
		c.dbMu.Unlock()
	case "full":
		err = c.fill(wait)
	}
	w.To = time.Now()
	c.mu.Lock()
	c.windows = append(c.windows, w)
	c.mu.Unlock()
	if err != nil {
		return fmt.Errorf("%s: %w", f, err)
	}
	return nil
}

// fill fills the database's disk. Where that ends the database, as it does when it
// cannot write its log, it is started again once there is room.
func (c *cluster) fill(wait func()) error {
	c.dbMu.Lock()
	defer c.dbMu.Unlock()
	path := filepath.Join(c.disk, "ballast")
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	n, err := io.Copy(file, zeros{})
	c.say("the disk is full: %d MB of ballast, %v", n>>20, err)
	wait()
	if err := errors.Join(file.Close(), os.Remove(path)); err != nil {
		return err
	}
	if !c.db.Ended() {
		return nil
	}
	c.say("the database has ended, its disk being full; it is started again")
	return c.db.Restart()
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// suffered is what was suffered so far.
func (c *cluster) suffered() []window {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.windows)
}

// letGo is when workers had to let their runs go, each time with the lease before it.
func (c *cluster) letGo() (all []window, err error) {
	for _, n := range c.nodes {
		times, nerr := n.letGo()
		err = errors.Join(err, nerr)
		for _, at := range times {
			all = append(all, window{Fault: "let go", Kind: "let go", Node: n.name, From: at.Add(-c.lease), To: at})
		}
	}
	return all, err
}

// close ends all, whatever state it is in.
func (c *cluster) close() {
	for _, n := range c.nodes {
		n.kill()
	}
	if c.store != nil {
		if err := c.store.Close(); err != nil {
			slog.Warn("cannot close the store", "error", err)
		}
	}
	if c.db != nil {
		c.db.Stop()
	}
	if c.disk != "" {
		if err := unmountDisk(c.disk); err != nil {
			c.say("cannot unmount %s: %v", c.disk, err)
		}
	}
}

// door is the URL of one of the servers, as the patrons reach it.
func (c *cluster) door(i int, path ...string) string {
	u := url.URL{Scheme: "http", Host: c.doors[i%len(c.doors)]}
	return u.JoinPath(path...).String()
}
