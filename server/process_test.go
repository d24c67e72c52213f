package server_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/server"
	"github.com/bide-dev/bide/sqlite"
)

// role is what a process that a test starts from its own binary does.
const role = "BIDE_SERVER_ROLE"

func TestMain(m *testing.M) {
	var err error
	switch args := strings.Fields(os.Getenv(role)); {
	case len(args) == 0:
		os.Exit(m.Run())
	case args[0] == "readers":
		err = beReaders(args[1], args[2], args[3])
	case args[0] == "server":
		err = beServer(args[1], args[2])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// beServer serves the file at the address.
func beServer(path, address string) error {
	store, err := sqlite.Open(path)
	if err != nil {
		return err
	}
	srv, err := server.New(store, server.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", address)
	if err != nil {
		return err
	}
	fmt.Println(listener.Addr())
	return srv.Serve(context.Background(), listener)
}

// process starts this binary in a role.
func process(tb testing.TB, args ...string) (*exec.Cmd, io.Reader) {
	tb.Helper()
	cmd := exec.CommandContext(context.Background(), os.Args[0])
	cmd.Env = append(os.Environ(), role+"="+strings.Join(args, " "))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { kill(cmd) })
	return cmd, out
}

// serving starts a server in a process of its own, and returns where it listens.
func serving(tb testing.TB, path, address string) (*exec.Cmd, string) {
	tb.Helper()
	cmd, out := process(tb, "server", path, address)
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		tb.Fatalf("the server said nothing: %v", err)
	}
	return cmd, strings.TrimSpace(line)
}

// kill ends a process that a test has started, without warning.
func kill(cmd *exec.Cmd) {
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}

const stepsARun = 10

type task struct {
	Name  string
	Steps int
}

// chain is a run of steps, each of which calls did.
func chain(did func(name string, step int)) *bide.Workflow[task, int] {
	return bide.Define("chain", func(ctx bide.Context, in task) (int, error) {
		for i := range in.Steps {
			if _, err := bide.Step(ctx, "work", func(context.Context) (string, error) {
				did(in.Name, i)
				return strings.Repeat("x", 98), nil
			}); err != nil {
				return 0, err
			}
		}
		return in.Steps, nil
	})
}
