// Certificate has a TLS certificate issued, in the manner of ACME: it orders,
// publishes the authority's challenge in the DNS, waits until the authority has seen
// it, at the pace that it is told, and downloads.
//
//	go run ./examples/certificate shop.example
//	go run ./examples/certificate forbidden.example     is refused
//
// Kill it at any moment (Ctrl-C or kill -9) and give the same command again: it
// goes on where it was, and nothing is ordered twice. -takes says how long the
// authority takes, -fresh orders anew.
//
// Needs nothing else: authority and DNS are started on a loopback port
// (service.go). Read workflow.go first.
package main

import (
	"context"
	"errors"
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
	db := flag.String("db", "certificate.db", "the file that keeps the runs; the authority's orders are put beside it")
	takes := flag.Duration("takes", 12*time.Second, "how long the authority takes")
	fresh := flag.Bool("fresh", false, "order anew")
	flag.Parse()
	domain := flag.Arg(0)
	if domain == "" {
		domain = "shop.example"
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	context.AfterFunc(ctx, stop) // a second Ctrl-C kills
	if err := run(ctx, *db, domain, *takes, *fresh); err != nil {
		fmt.Fprintln(os.Stderr, "certificate:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, db, domain string, takes time.Duration, fresh bool) error {
	store, err := sqlite.Open(db) // first: it keeps a second process out
	if err != nil {
		return err
	}
	defer store.Close()
	service, err := openService(strings.TrimSuffix(db, ".db")+".orders.json", takes, time.Second)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	go http.Serve(l, service)

	workflow := newWorkflow(&client{"http://" + l.Addr().String(), http.DefaultClient})
	again := bide.Existing // one id is one run, however often it is started
	if fresh {
		again = bide.Replace
	}
	run, err := workflow.Start(ctx, bide.NewClient(store), domain, bide.ID("certificate-"+domain), again)
	if err != nil {
		return err
	}
	fmt.Printf("Run %s, new: %t, in process %d. Stop or kill it when you like, then give the same command again.\n", run.ID(), run.New(), os.Getpid())

	worker := bide.NewWorker(store, bide.WorkerConfig{})
	worker.Register(workflow)
	var pem string
	err = worker.While(ctx, func(ctx context.Context) (err error) {
		pem, err = run.Result(ctx, bide.TerminalProgress(os.Stderr))
		return err
	})
	refused, isRefused := errors.AsType[*InvalidOrderError](err)
	switch {
	case ctx.Err() != nil:
		fmt.Println("Stopped. The same command goes on.")
		return nil
	case isRefused:
		return fmt.Errorf("%w (-fresh orders anew)", refused)
	case err != nil:
		return err
	}
	fmt.Print(pem)
	return nil
}
