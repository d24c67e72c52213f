// Approval asks a person, who may take days: by mail, with a link to answer by.
// There are reminders after one day and two, the boss is asked after three, and
// after seven the answer is no.
//
//	go run ./examples/approval -day 10s "a new coffee machine"
//
// Answer with the curl line of the mail, or type yes or no. Kill it at any moment
// (Ctrl-C or kill -9) and give the same command again: the link still holds, and
// the days have gone on. Without -day a day is one. -fresh asks anew.
//
// Needs nothing else: the mail server is started on a loopback port (world.go).
// Read workflow.go first.
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
	"github.com/bide-dev/bide/webhook"
)

func main() {
	db := flag.String("db", "approval.db", "the file that keeps the runs; the mails are put beside it")
	listen := flag.String("listen", "127.0.0.1:8743", "where the links lead to")
	day := flag.Duration("day", 24*time.Hour, "how long a day is")
	fresh := flag.Bool("fresh", false, "ask anew")
	flag.Parse()
	what := strings.Join(flag.Args(), " ")
	if what == "" {
		what = "a new coffee machine"
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	context.AfterFunc(ctx, stop) // a second Ctrl-C kills
	if err := run(ctx, *db, *listen, what, *day, *fresh); err != nil {
		fmt.Fprintln(os.Stderr, "approval:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, db, listen, what string, day time.Duration, fresh bool) error {
	store, err := sqlite.Open(db) // first: it keeps a second process out
	if err != nil {
		return err
	}
	defer store.Close()
	server, err := openMailServer(strings.TrimSuffix(db, ".db")+".mails.json", os.Stdout)
	if err != nil {
		return err
	}
	mailURL, err := serve("127.0.0.1:0", server)
	if err != nil {
		return err
	}
	publicURL, err := serve(listen, webhook.NewHandler(store, webhook.Config{}))
	if err != nil {
		return err
	}

	o := &office{mail: &mailer{mailURL, http.DefaultClient}, approver: "ann", boss: "bob", day: day}
	workflow := o.workflow()
	runs := bide.NewClient(store)
	again := bide.Existing // one id is one run, however often it is started
	if fresh {
		again = bide.Replace
	}
	request := Request{What: what, From: "joe"}
	run, err := workflow.Start(ctx, runs, request, bide.ID("approval-"+strings.ReplaceAll(what, " ", "-")), again)
	if err != nil {
		return err
	}
	fmt.Printf("Run %s, new: %t, in process %d. Stop or kill it when you like, then give the same command again.\n", run.ID(), run.New(), os.Getpid())
	go answer(ctx, runs, run.ID())

	worker := bide.NewWorker(store, bide.WorkerConfig{PublicURL: publicURL})
	worker.Register(workflow)
	var verdict Verdict
	err = worker.While(ctx, func(ctx context.Context) (err error) {
		verdict, err = run.Result(ctx, bide.TerminalProgress(os.Stderr))
		return err
	})
	switch {
	case ctx.Err() != nil:
		fmt.Println("Stopped. The same command goes on.")
		return nil
	case err != nil:
		return fmt.Errorf("%w (-fresh asks anew)", err)
	}
	fmt.Printf("Approved: %t, by %s.\n", verdict.Approved, verdict.By)
	return nil
}

// answer sends a verdict for each yes or no that is typed.
func answer(ctx context.Context, runs *bide.Client, id string) {
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		word := strings.TrimSpace(lines.Text())
		if word != "yes" && word != "no" {
			continue
		}
		if err := runs.Signal(ctx, id, "verdict", Verdict{Approved: word == "yes", By: "you"}); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
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
