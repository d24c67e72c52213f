package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/remote"
	"github.com/bide-dev/bide/sqlite"
)

// What the scripts start runs of: a worker on a file or a server, as a program of
// its own, until it is stopped.

var errOutOfPaper = errors.New("out of paper")

func testWorkflows() []bide.Definition {
	return []bide.Definition{
		bide.Define("hello", func(ctx bide.Context, name string) (string, error) {
			bide.Progress(ctx, 50, "writing")
			return bide.Step(ctx, "write", func(ctx context.Context) (string, error) {
				_, err := fmt.Fprintf(bide.Stream(ctx), "hello %s\n", name)
				return "hello " + name, err
			})
		}),
		bide.Define("approval", func(ctx bide.Context, _ any) (any, error) {
			err := bide.Do(ctx, "ask", func(ctx context.Context) error {
				_, err := fmt.Fprintln(bide.Stream(ctx), "may we?")
				return err
			})
			if err != nil {
				return nil, err
			}
			return bide.Receive[any](ctx, "approval", bide.Timeout(time.Hour))
		}),
		bide.Define("asleep", func(ctx bide.Context, _ any) (string, error) { return "awake", bide.Sleep(ctx, time.Hour) }),
		bide.Define("job", func(ctx bide.Context, _ any) (string, error) {
			return bide.Poll(ctx, "render", func(context.Context) (string, error) {
				return "at work", nil
			}, func(s string) bool { return s == "done" }, bide.Every(time.Hour), bide.Timeout(24*time.Hour))
		}),
		bide.Define("failing", func(ctx bide.Context, _ any) (string, error) {
			return bide.Step(ctx, "print", func(context.Context) (string, error) {
				if _, err := os.Stat("paper"); err != nil {
					return "", bide.Permanent(errOutOfPaper)
				}
				return "printed", nil
			})
		}),
		bide.Loop("ticks", func(context.Context) error { return nil }, bide.Every(time.Hour), bide.RunImmediately{}),
	}
}

// testworker is the command "testworker FILE|URL".
func testworker() {
	if err := work(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func work(at string) error {
	var store bide.Store
	var err error
	if strings.HasPrefix(at, "http") {
		store, err = remote.Dial(at)
	} else {
		store, err = sqlite.Open(at)
	}
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	worker := bide.NewWorker(store, bide.WorkerConfig{})
	worker.Register(testWorkflows()...)
	return errors.Join(worker.Run(ctx), store.Close())
}
