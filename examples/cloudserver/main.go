// Cloudserver orders a server, waits until it has an address, logs in as soon as it
// lets us, and configures it. At the end it shows how long each part took.
//
//	go run ./examples/cloudserver web-1
//	go run ./examples/cloudserver bad-1     cannot be built
//
// Kill it at any moment (Ctrl-C or kill -9) and give the same command again: it
// goes on at the part it had come to, and no second server is ordered. -build and
// -boot say how long a new machine takes, -fresh orders anew.
//
// Needs nothing else: the cloud is started on a loopback port (world.go). Read
// workflow.go first.
package main

import (
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
	db := flag.String("db", "cloudserver.db", "the file that keeps the runs; the cloud's servers are put beside it")
	build := flag.Duration("build", 10*time.Second, "how long a new machine takes to get its address")
	boot := flag.Duration("boot", 8*time.Second, "how long it takes to boot then")
	fresh := flag.Bool("fresh", false, "forget the earlier run of this name")
	flag.Parse()
	name := flag.Arg(0)
	if name == "" {
		name = "web-1"
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	context.AfterFunc(ctx, stop) // a second Ctrl-C kills
	if err := run(ctx, *db, name, *build, *boot, *fresh); err != nil {
		fmt.Fprintln(os.Stderr, "cloudserver:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, db, name string, build, boot time.Duration, fresh bool) error {
	store, err := sqlite.Open(db) // first: it keeps a second process out
	if err != nil {
		return err
	}
	defer store.Close()
	world, err := openWorld(strings.TrimSuffix(db, ".db")+".servers.json", build, boot)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	go http.Serve(l, world)

	workflow := newWorkflow(&cloud{"http://" + l.Addr().String(), http.DefaultClient, &http.Client{Transport: world}})
	runs := bide.NewClient(store)
	again := bide.Existing // one id is one run, however often it is started
	if fresh {
		again = bide.Replace
	}
	run, err := workflow.Start(ctx, runs, name, bide.ID("server-"+name), again)
	if err != nil {
		return err
	}
	fmt.Printf("Run %s, new: %t, in process %d. Stop or kill it when you like, then give the same command again.\n", run.ID(), run.New(), os.Getpid())

	worker := bide.NewWorker(store, bide.WorkerConfig{})
	worker.Register(workflow)
	var ready Ready
	err = worker.While(ctx, func(ctx context.Context) (err error) {
		ready, err = run.Result(ctx, bide.TerminalProgress(os.Stderr))
		return err
	})
	if ctx.Err() != nil {
		fmt.Println("Stopped. The same command goes on.")
		return nil
	}
	history, herr := runs.History(ctx, run.ID(), 0)
	if herr != nil {
		return herr
	}
	for _, r := range history {
		if r.Kind == bide.KindPhase {
			fmt.Printf("  %-10s %v\n", r.Name, r.Took.Round(time.Millisecond))
		}
	}
	if err != nil {
		return fmt.Errorf("%w (-fresh begins anew)", err)
	}
	fmt.Printf("%s is ready at %s.\n", ready.ID, ready.IP)
	return nil
}
