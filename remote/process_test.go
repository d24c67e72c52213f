package remote_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/remote"
	"github.com/bide-dev/bide/sqlite"
)

// role is what a process that a test starts from its own binary does.
const role = "BIDE_REMOTE_ROLE"

func TestMain(m *testing.M) {
	var err error
	switch args := strings.Fields(os.Getenv(role)); {
	case len(args) == 0:
		os.Exit(m.Run())
	case args[0] == "server":
		err = beServer(args[1], args[2])
	case args[0] == "worker":
		err = beWorker(args[1], args[2])
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// beServer serves the file at the address.
func beServer(path, address string) error {
	store, err := sqlite.Open(path)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	fmt.Println(l.Addr())
	mux := http.NewServeMux()
	mux.Handle(remote.NewHandler(store))
	srv := &http.Server{Handler: mux}
	return srv.Serve(l)
}

const stepsARun = 10

type task struct {
	Name  string
	Steps int
}

// chain is a run of steps, each of which calls did.
func chain(did func(name string, step int) error) *bide.Workflow[task, int] {
	return bide.Define("chain", func(ctx bide.Context, in task) (int, error) {
		for i := range in.Steps {
			if _, err := bide.Step(ctx, "work", func(context.Context) (string, error) {
				return strings.Repeat("x", 98), did(in.Name, i)
			}); err != nil {
				return 0, err
			}
		}
		return in.Steps, nil
	})
}

// lease is short, so that what a killed worker held goes on soon.
const lease = 2 * time.Second

// beWorker works, and writes a line for each step that it calls.
func beWorker(url, witness string) error {
	f, err := os.OpenFile(witness, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	store, err := remote.Dial(url)
	if err != nil {
		return err
	}
	w := bide.NewWorker(store, bide.WorkerConfig{Lease: lease, MaxTurns: 100})
	w.Register(chain(func(name string, step int) error {
		_, err := fmt.Fprintf(f, "%s %d\n", name, step)
		return err
	}))
	fmt.Println("works")
	return w.Run(context.Background())
}

// start starts this binary in a role, and returns what it says first.
func start(t testing.TB, args ...string) (*exec.Cmd, string) {
	t.Helper()
	cmd := exec.CommandContext(context.Background(), os.Args[0])
	cmd.Env = append(os.Environ(), role+"="+strings.Join(args, " "))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { kill(cmd) })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("%v said nothing: %v", args, err)
	}
	return cmd, strings.TrimSpace(line)
}

// kill ends a process that a test has started, without warning.
func kill(cmd *exec.Cmd) {
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}
