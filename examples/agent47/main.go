// Agent47 is an agent that takes 47 steps in one run: it plans, then fifteen
// times over thinks, calls a tool and observes what came of it, then answers.
//
//	go run ./examples/agent47
//
// Kill it wherever you like (Ctrl-C, or kill -9 and the PID that it prints), and
// give the same command again: it goes on at the step it had come to. Each step
// leaves a line in agent47.effects, so that you can count afterwards how often
// each really ran. To start afresh, remove agent47.*.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"time"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/sqlite"
)

func main() {
	dir := flag.String("dir", ".", "where agent47.db and agent47.effects are kept")
	pace := flag.Duration("pace", 300*time.Millisecond, "how long a step takes")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	context.AfterFunc(ctx, stop) // a second Ctrl-C kills
	if err := run(ctx, *dir, *pace); err != nil {
		fmt.Fprintln(os.Stderr, "agent47:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, dir string, pace time.Duration) error {
	store, err := sqlite.Open(filepath.Join(dir, "agent47.db"))
	if err != nil {
		return err
	}
	defer store.Close()
	world, err := openWorld(filepath.Join(dir, "agent47.effects"), pace)
	if err != nil {
		return err
	}
	defer world.Close()

	agent := newAgent(world)
	run, err := agent.Start(ctx, bide.NewClient(store), "why does the moon have phases", bide.ID("agent-47"))
	if err != nil {
		return err
	}
	if run.New() {
		fmt.Printf("Run %s begins in process %d.\n", run.ID(), os.Getpid())
	} else {
		fmt.Printf("Run %s is there already; process %d goes on with it.\n", run.ID(), os.Getpid())
	}

	worker := bide.NewWorker(store, bide.WorkerConfig{})
	worker.Register(agent)
	var answer string
	err = worker.While(ctx, func(ctx context.Context) (err error) {
		answer, err = run.Result(ctx, bide.TerminalProgress(os.Stderr))
		return err
	})
	if ctx.Err() != nil {
		fmt.Println("\nStopped. The same command goes on.")
		return nil
	}
	if err != nil {
		return err
	}
	effects, err := world.effects()
	if err != nil {
		return err
	}
	// More effects than steps? Then a kill came between an effect and its record.
	fmt.Printf("%s\n%d steps, %d effects.\n", answer, steps, len(effects))
	return nil
}
