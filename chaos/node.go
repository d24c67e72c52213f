package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/internal/timeline"
	"github.com/bide-dev/bide/postgres"
	"github.com/bide-dev/bide/remote"
	"github.com/bide-dev/bide/server"
)

// roleEnv tells a process of this binary what it is.
const roleEnv = "BIDE_CHAOS_ROLE"

// role is what a node is told; what it connects to are links.
type role struct {
	Node     string // its name, and how often it was started
	Kind     string // "worker", "remote" or "server"
	Database string // address
	Server   string // address, of a remote worker
	Witness  string // address
	Lease    time.Duration
}

// node is a process of the cluster.
type node struct {
	name, kind string
	role       role
	log        string // file

	mu    sync.Mutex
	cmd   *exec.Cmd
	stdin io.WriteCloser
	life  int
	addr  string // of a server
}

// start starts the process, and returns when it says that it is up.
func (n *node) start(ctx context.Context) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.life++
	r := n.role
	r.Node = fmt.Sprintf("%s#%d", n.name, n.life)
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	log, err := os.OpenFile(n.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	cmd := exec.CommandContext(context.WithoutCancel(ctx), self)
	cmd.Env = append(os.Environ(), roleEnv+"="+string(text))
	cmd.Stderr = log
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	n.cmd, n.stdin = cmd, in
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		n.cmd = nil
		return fmt.Errorf("%s has not come up: %w; see %s", r.Node, err, n.log)
	}
	n.addr = strings.TrimSpace(line)
	return nil
}

// kill ends the process without a word.
func (n *node) kill() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cmd == nil {
		return
	}
	_ = n.cmd.Process.Kill()
	_ = n.cmd.Wait()
	n.cmd, n.addr = nil, ""
}

var hasLetGo = regexp.MustCompile(`(?m)^time=(\S+) .*the runs in hand are let go`)

// letGo returns when the process had to let its runs go, as its log says.
func (n *node) letGo() (times []time.Time, err error) {
	log, err := os.ReadFile(n.log)
	for _, m := range hasLetGo.FindAllSubmatch(log, -1) {
		at, perr := time.Parse(time.RFC3339, string(m[1]))
		times, err = append(times, at), errors.Join(err, perr)
	}
	return times, err
}

// signal stops the process or lets it go on, if it lives.
func (n *node) signal(how func(*os.Process) error) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cmd == nil {
		return nil
	}
	return how(n.cmd.Process)
}

// skew sets the process's wall clock, as bide sees it.
func (n *node) skew(by time.Duration) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cmd == nil {
		return nil
	}
	_, err := fmt.Fprintln(n.stdin, by)
	return err
}

// address is where a server listens.
func (n *node) address() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.addr
}

// play is the life of a process of the cluster. It ends with its parent, who holds
// its standard input.
func play(text string) error {
	var r role
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return err
	}
	slog.SetDefault(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelInfo})).With("node", r.Node))
	go obey()
	ctx := context.Background()
	store, err := connect(ctx, r)
	if err != nil {
		return err
	}
	if r.Kind == "server" {
		return serve(ctx, store)
	}
	cfg := bide.WorkerConfig{Lease: r.Lease, WarmFor: 2 * time.Second, PublicURL: "http://hooks.invalid", Queues: []string{"default"}}
	db, _ := store.(*postgres.Store)
	if db != nil {
		cfg.Queues = append(cfg.Queues, ledgers)
	}
	w := bide.NewWorker(store, cfg)
	c := newCast(r.Node, r.Witness, db)
	w.Register(c.tour, c.kid, c.clerk, c.victim, c.loop, c.chore)
	fmt.Fprintln(os.Stdout, "up")
	return w.Run(ctx)
}

// obey does what the parent says: each line is by how much the wall clock jumps.
func obey() {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		if d, err := time.ParseDuration(lines.Text()); err == nil {
			timeline.Jump(d)
			slog.Info("the clock is set", "by", d)
		}
	}
	os.Exit(4)
}

// connect opens the store, for as long as it takes.
func connect(ctx context.Context, r role) (bide.Store, error) {
	if r.Kind == "remote" {
		return remote.Dial("http://" + r.Server)
	}
	for {
		store, err := postgres.Open(ctx, dsnOf(r.Database))
		if err == nil {
			return store, nil
		}
		if _, ok := errors.AsType[*bide.InvalidError](err); ok {
			return nil, err
		}
		slog.Warn("cannot open the store; trying again", "error", err)
		if err := pause(ctx, 200*time.Millisecond); err != nil {
			return nil, err
		}
	}
}

// dsnOf is the database behind an address.
func dsnOf(address string) string {
	return "postgres://bide@" + address + "/postgres?" + url.Values{"sslmode": {"disable"}}.Encode()
}

func serve(ctx context.Context, store bide.Store) error {
	hooks, err := webhooks()
	if err != nil {
		return err
	}
	srv, err := server.New(store, server.Config{Addr: "127.0.0.1:0", Webhooks: hooks})
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- srv.Run(ctx) }()
	for srv.URL() == "" {
		select {
		case err := <-ended:
			return err
		case <-time.After(5 * time.Millisecond):
		}
	}
	fmt.Fprintln(os.Stdout, strings.TrimPrefix(srv.URL(), "http://"))
	return <-ended
}
