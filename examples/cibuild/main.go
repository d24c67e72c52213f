// Cibuild starts a build at a CI and waits for it to succeed or fail. The CI tells
// by a signed webhook; a poll every 30 s is the net below it.
//
//	go run ./examples/cibuild 4f2a91c     succeeds
//	go run ./examples/cibuild bad0ff1     fails
//
// Kill it at any moment (Ctrl-C or kill -9) and give the same command again: the
// build has gone on meanwhile, and so does the run. -fresh builds the commit anew,
// -takes 10m makes builds longer.
//
// Needs nothing else: the CI is started on a loopback port (service.go). Read
// workflow.go first.
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
	"github.com/bide-dev/bide/webhook"
)

// secret is shared with the CI. In earnest it comes from the environment.
const secret = "whispered"

func main() {
	db := flag.String("db", "cibuild.db", "the file that keeps the runs; the CI's builds are put beside it")
	listen := flag.String("listen", "127.0.0.1:8742", "where webhooks are taken")
	takes := flag.Duration("takes", 20*time.Second, "how long a new build takes")
	fresh := flag.Bool("fresh", false, "build the commit anew")
	flag.Parse()
	commit := flag.Arg(0)
	if commit == "" {
		commit = "4f2a91c"
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	context.AfterFunc(ctx, stop) // a second Ctrl-C kills
	if err := run(ctx, *db, *listen, commit, *takes, *fresh); err != nil {
		fmt.Fprintln(os.Stderr, "cibuild:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, db, listen, commit string, takes time.Duration, fresh bool) error {
	store, err := sqlite.Open(db) // first: it keeps a second process out
	if err != nil {
		return err
	}
	defer store.Close()
	signed, err := webhook.GitHub(secret)
	if err != nil {
		return err
	}
	hooks := webhook.NewHandler(store, webhook.Config{Verifiers: map[string]webhook.Verifier{verifier: signed}})
	publicURL, err := serve(listen, hooks)
	if err != nil {
		return err
	}
	ci, err := openService(strings.TrimSuffix(db, ".db")+".builds.json", takes, secret, http.DefaultClient)
	if err != nil {
		return err
	}
	ciURL, err := serve("127.0.0.1:0", ci)
	if err != nil {
		return err
	}

	workflow := newWorkflow(&client{ciURL, http.DefaultClient})
	again := bide.Existing // one id is one run, however often it is started
	if fresh {
		again = bide.Replace
	}
	run, err := workflow.Start(ctx, bide.NewClient(store), commit, bide.ID("build-"+commit), again)
	if err != nil {
		return err
	}
	fmt.Printf("Run %s, new: %t, in process %d. Stop or kill it when you like, then give the same command again.\n", run.ID(), run.New(), os.Getpid())

	worker := bide.NewWorker(store, bide.WorkerConfig{PublicURL: publicURL})
	worker.Register(workflow)
	var built build
	err = worker.While(ctx, func(ctx context.Context) (err error) {
		built, err = run.Result(ctx, bide.TerminalProgress(os.Stderr))
		return err
	})
	failure, failed := errors.AsType[*BuildError](err)
	switch {
	case ctx.Err() != nil:
		fmt.Println("Stopped. The same command goes on.")
		return nil
	case failed:
		return fmt.Errorf("%w (-fresh builds it anew)", failure)
	case err != nil:
		return err
	}
	fmt.Printf("%s of %s: %s.\n", built.ID, built.Commit, built.Conclusion)
	return nil
}

// serve puts the handler on an address of this machine and returns its URL.
func serve(address string, h http.Handler) (url string, err error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return "", err
	}
	go http.Serve(l, h)
	return "http://" + l.Addr().String(), nil
}
