// Package pgtest runs a Postgres server for the tests of one binary: in a
// directory of its own, on a socket of its own, gone when the tests are over.
package pgtest

import (
	"bytes"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Server is a running server.
type Server struct {
	DSN  string // as its superuser
	dir  string
	bin  string
	args []string
	who  account
	cmd  *exec.Cmd
	out  *output
	end  chan struct{}
}

// ErrMissing says that no Postgres is installed and none can be.
var ErrMissing = errors.New("pgtest: no initdb on the PATH or under /usr/lib/postgresql, and apt-get cannot install it")

// Start makes a database and starts a server of it. dir is where its directory
// is made, "" for the temporary one. Settings are as in postgresql.conf; with
// "fsync=off" first of all, tests whose data need not last are faster.
func Start(dir string, settings ...string) (*Server, error) {
	bin, err := find()
	if err != nil {
		return nil, err
	}
	home, err := os.MkdirTemp(dir, "pgtest-")
	if err != nil {
		return nil, err
	}
	s := &Server{dir: home, bin: bin, out: &output{}}
	if err := s.start(settings); err != nil {
		_ = os.RemoveAll(home)
		return nil, fmt.Errorf("pgtest: %w\n%s", err, s.out)
	}
	return s, nil
}

func (s *Server) start(settings []string) (err error) {
	if s.who, err = s.unprivileged(); err != nil {
		return err
	}
	data := filepath.Join(s.dir, "data")
	initdb := exec.Command(filepath.Join(s.bin, "initdb"), "-D", data, "-U", "bide", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
	initdb.Dir, initdb.Stdout, initdb.Stderr = s.dir, s.out, s.out
	s.who.become(initdb)
	if err := initdb.Run(); err != nil {
		return fmt.Errorf("initdb: %w", err)
	}
	s.args = []string{"-D", data, "-k", s.dir, "-c", "listen_addresses=", "-c", "max_connections=200"}
	for _, x := range settings {
		s.args = append(s.args, "-c", x)
	}
	s.DSN = "postgres:///postgres?" + url.Values{"host": {s.dir}, "user": {"bide"}}.Encode()
	return s.launch()
}

// launch starts the server of the database that is there.
func (s *Server) launch() error {
	started := make(chan error, 1)
	s.end = make(chan struct{})
	s.cmd = exec.Command(filepath.Join(s.bin, "postgres"), s.args...)
	s.cmd.Dir, s.cmd.Stdout, s.cmd.Stderr = s.dir, s.out, s.out
	s.who.become(s.cmd)
	go run(s.cmd, started, s.end)
	if err := <-started; err != nil {
		return err
	}
	return s.await()
}

// Crash ends the server at once, as an immediate shutdown does: it has to recover
// what it had promised when it starts again. One that has ended already is left so.
func (s *Server) Crash() {
	_ = s.cmd.Process.Signal(quit)
	<-s.end
}

// Ended reports whether the server is no longer there.
func (s *Server) Ended() bool {
	select {
	case <-s.end:
		return true
	default:
		return false
	}
}

// Restart starts a server again that has ended, or was made to.
func (s *Server) Restart() error {
	s.out.forget()
	if err := s.launch(); err != nil {
		return fmt.Errorf("pgtest: %w\n%s", err, s.out)
	}
	return nil
}

// Socket is where the server listens.
func (s *Server) Socket() string { return filepath.Join(s.dir, ".s.PGSQL.5432") }

// await waits until the server takes connections.
func (s *Server) await() error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	late := time.After(time.Minute)
	for {
		select {
		case <-tick.C:
			if strings.Contains(s.out.String(), "ready to accept connections") {
				return nil
			}
		case <-s.end:
			return errors.New("the server ended at its start")
		case <-late:
			s.Stop()
			return errors.New("the server has not come up in a minute")
		}
	}
}

// Size is the disk that the server takes, its log of changes left out.
func (s *Server) Size() (size int64, err error) {
	err = filepath.WalkDir(filepath.Join(s.dir, "data", "base"), func(_ string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() { // else it was there a moment ago
			if info, err := d.Info(); err == nil {
				size += info.Size()
			}
		}
		return nil
	})
	return size, err
}

// Stop ends the server and removes its directory.
func (s *Server) Stop() {
	_ = s.cmd.Process.Signal(interrupt)
	<-s.end
	_ = os.RemoveAll(s.dir)
}

// account is whom the server runs as: it refuses to be root.
type account struct {
	uid, gid int // 0: as we are
}

func (s *Server) unprivileged() (a account, err error) {
	if os.Getuid() != 0 {
		return a, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		a.uid, _ = strconv.Atoi(u.Uid)
		a.gid, _ = strconv.Atoi(u.Gid)
		return a, os.Chown(s.dir, a.uid, a.gid)
	}
	return a, errors.New("running as root, and there is neither a user postgres nor nobody to run the server as")
}

var find = sync.OnceValues(func() (string, error) {
	if bin := look(); bin != "" {
		return bin, nil
	}
	if os.Getuid() != 0 {
		return "", ErrMissing
	}
	for _, args := range [][]string{{"update", "-q"}, {"install", "-y", "-q", "--no-install-recommends", "postgresql"}} {
		apt := exec.Command("apt-get", args...)
		apt.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		if out, err := apt.CombinedOutput(); err != nil {
			return "", fmt.Errorf("%w: %w\n%s", ErrMissing, err, out)
		}
	}
	if bin := look(); bin != "" {
		return bin, nil
	}
	return "", ErrMissing
})

// look finds the directory with the newest server's programs.
func look() string {
	all, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	slices.SortFunc(all, func(a, b string) int { return major(b) - major(a) })
	if path, err := exec.LookPath("initdb"); err == nil {
		all = append(all, path)
	}
	for _, initdb := range all {
		if real, err := filepath.EvalSymlinks(initdb); err == nil {
			return filepath.Dir(real)
		}
	}
	return ""
}

func major(path string) int {
	n, _ := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(path))))
	return n
}

// output keeps what the server says.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.buf.Len() > 1<<20 {
		return len(p), nil
	}
	return o.buf.Write(p)
}

func (o *output) forget() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.buf.Reset()
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}
