// Dbready starts three services that need a database which is not there yet: nobody
// listens, then it does not answer, then it is migrated step by step.
//
//	go run ./examples/dbready
//	go run ./examples/dbready -password guessed     stops at the first answer
//
// Kill it at any moment (Ctrl-C or kill -9) and give the same command again: the
// database comes up meanwhile. -up says when it begins to listen, -fresh begins
// anew.
//
// Needs nothing else: the database is started on a loopback port (world.go). Read
// workflow.go first.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/sqlite"
)

func main() {
	db := flag.String("db", "dbready.db", "the file that keeps the runs; the database's state is put beside it")
	listen := flag.String("listen", "127.0.0.1:8744", "where the database will listen")
	up := flag.Duration("up", 10*time.Second, "when it begins to")
	given := flag.String("password", password, "what the services say")
	fresh := flag.Bool("fresh", false, "begin anew")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	context.AfterFunc(ctx, stop) // a second Ctrl-C kills
	if err := run(ctx, *db, *listen, *given, *up, *fresh); err != nil {
		fmt.Fprintln(os.Stderr, "dbready:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, db, listen, given string, up time.Duration, fresh bool) error {
	store, err := sqlite.Open(db) // first: it keeps a second process out
	if err != nil {
		return err
	}
	defer store.Close()
	world := &world{file: strings.TrimSuffix(db, ".db") + ".database.json", up: up, hang: 3 * time.Second, step: time.Second, last: 7}
	again := bide.Existing // one id is one run, however often it is started
	if fresh {
		again = bide.Replace
		_ = os.Remove(world.file) // it may not be there
	}
	if err := world.open(); err != nil {
		return err
	}
	go func() {
		time.Sleep(time.Until(world.listens())) // until then, connections are refused
		l, err := net.Listen("tcp", listen)
		if err == nil {
			err = http.Serve(l, world)
		}
		fmt.Fprintln(os.Stderr, "the database:", err)
	}()

	workflow := newWorkflow(&database{"http://" + listen, given, http.DefaultClient})
	client := bide.NewClient(store)
	var runs []*bide.Handle[status]
	for _, service := range []string{"web", "queue", "mail"} {
		run, err := workflow.Start(ctx, client, Wanted{service, world.last}, bide.ID("dbready-"+service), again)
		if err != nil {
			return err
		}
		fmt.Printf("Run %s, new: %t, in process %d.\n", run.ID(), run.New(), os.Getpid())
		runs = append(runs, run)
	}

	worker := bide.NewWorker(store, bide.WorkerConfig{Logger: slog.New(slog.DiscardHandler)}) // no line for each move of the breaker
	worker.Register(workflow)
	err = worker.While(ctx, func(ctx context.Context) error {
		for _, run := range runs {
			if _, err := run.Result(ctx, bide.TerminalProgress(os.Stderr)); err != nil {
				return err
			}
		}
		return nil
	})
	switch {
	case ctx.Err() != nil:
		fmt.Println("Stopped. The same command goes on.")
		return nil
	case err != nil:
		return fmt.Errorf("%w (-fresh begins anew)", err)
	}
	fmt.Println("Using the database:", strings.Join(world.state.Sessions, ", "))
	return nil
}
