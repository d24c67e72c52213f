// Deployment takes a release through three phases of minutes each, with progress 0,
// 33, 66 and 100. If one fails, or you cancel, what was done is rolled back.
//
//	go run ./examples/deployment v2
//	go run ./examples/deployment bad3    fails in the last phase
//
// Type cancel and Enter to cancel. Kill it at any moment (Ctrl-C or kill -9) and
// give the same command again: the phase has gone on meanwhile, and a roll-back too
// goes on where it was. -takes 15m is a deployment of real length, -fresh deploys
// the version anew.
//
// Needs nothing else: the platform is started on a loopback port (service.go). Read
// workflow.go first.
package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
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
	db := flag.String("db", "deployment.db", "the file that keeps the runs; the platform's tasks are put beside it")
	takes := flag.Duration("takes", 24*time.Second, "how long the three phases take")
	fresh := flag.Bool("fresh", false, "deploy the version anew")
	flag.Parse()
	version := flag.Arg(0)
	if version == "" {
		version = "v2"
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	context.AfterFunc(ctx, stop) // a second Ctrl-C kills
	if err := run(ctx, *db, version, *takes, *fresh); err != nil {
		fmt.Fprintln(os.Stderr, "deployment:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, db, version string, takes time.Duration, fresh bool) error {
	store, err := sqlite.Open(db) // first: it keeps a second process out
	if err != nil {
		return err
	}
	defer store.Close()
	service, err := openService(strings.TrimSuffix(db, ".db")+".tasks.json", map[string]time.Duration{
		"database": takes / 4, "servers": takes / 2, "traffic": takes / 4,
	})
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	go http.Serve(l, service)

	workflow := newWorkflow(&platform{"http://" + l.Addr().String(), http.DefaultClient})
	runs := bide.NewClient(store)
	again := bide.Existing // one id is one run, however often it is started
	if fresh {
		again = bide.Replace
	}
	run, err := workflow.Start(ctx, runs, Release{version}, bide.ID("deployment-"+version), again)
	if err != nil {
		return err
	}
	fmt.Printf("Run %s, new: %t, in process %d. Stop or kill it when you like, then give the same command again.\n"+
		"Type cancel and Enter to have it rolled back.\n", run.ID(), run.New(), os.Getpid())
	go func() {
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			if strings.TrimSpace(lines.Text()) == "cancel" {
				if err := runs.Cancel(ctx, run.ID(), "typed"); err != nil {
					fmt.Fprintln(os.Stderr, err)
				}
			}
		}
	}()

	worker := bide.NewWorker(store, bide.WorkerConfig{})
	worker.Register(workflow)
	var release Release
	err = worker.While(ctx, func(ctx context.Context) (err error) {
		release, err = run.Result(ctx, bide.TerminalProgress(os.Stderr))
		return err
	})
	if ctx.Err() != nil {
		fmt.Println("Stopped. The same command goes on.")
		return nil
	}
	fmt.Println("What the platform did, over all runs:", strings.Join(service.state.Log, ", "))
	if err != nil {
		return fmt.Errorf("%w (-fresh deploys it anew)", err)
	}
	fmt.Println("Deployed:", release.Version)
	return nil
}
