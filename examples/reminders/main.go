// Reminders writes to a customer once a day until there is an answer, and writes no
// mail twice: not even if it is killed while it sends one.
//
//	go run ./examples/reminders -day 5s ann@example.org
//
// Type an answer and Enter. Kill it at any moment (Ctrl-C or kill -9) and give the
// same command again: the days have gone on. Without -day a day is one. -fresh
// begins anew.
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
)

func main() {
	db := flag.String("db", "reminders.db", "the file that keeps the runs; the mails are put beside it")
	day := flag.Duration("day", 24*time.Hour, "how long a day is")
	fresh := flag.Bool("fresh", false, "begin anew with this customer")
	flag.Parse()
	customer := flag.Arg(0)
	if customer == "" {
		customer = "ann@example.org"
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	context.AfterFunc(ctx, stop) // a second Ctrl-C kills
	if err := run(ctx, *db, customer, *day, *fresh); err != nil {
		fmt.Fprintln(os.Stderr, "reminders:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, db, customer string, day time.Duration, fresh bool) error {
	store, err := sqlite.Open(db) // first: it keeps a second process out
	if err != nil {
		return err
	}
	defer store.Close()
	server, err := openMailServer(strings.TrimSuffix(db, ".db")+".mails.json", os.Stdout)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	go http.Serve(l, server)

	r := &reminders{mail: &mailer{"http://" + l.Addr().String(), http.DefaultClient}, day: day}
	workflow := r.workflow()
	runs := bide.NewClient(store)
	again := bide.Existing // one id is one run, however often it is started
	if fresh {
		again = bide.Replace
	}
	run, err := workflow.Start(ctx, runs, customer, bide.ID("reminders-"+customer), again)
	if err != nil {
		return err
	}
	fmt.Printf("Run %s, new: %t, in process %d. Stop or kill it when you like, then give the same command again.\n", run.ID(), run.New(), os.Getpid())
	go answer(ctx, runs, run.ID())

	worker := bide.NewWorker(store, bide.WorkerConfig{})
	worker.Register(workflow)
	var outcome Outcome
	err = worker.While(ctx, func(ctx context.Context) (err error) {
		outcome, err = run.Result(ctx, bide.TerminalProgress(os.Stderr))
		return err
	})
	switch {
	case ctx.Err() != nil:
		fmt.Println("Stopped. The same command goes on.")
		return nil
	case err != nil:
		return fmt.Errorf("%w (-fresh begins anew)", err)
	}
	fmt.Printf("Answer: %q. Sent, or maybe not: %q.\n", outcome.Answer, outcome.Unknown)
	return nil
}

// answer sends what is typed, in the customer's name.
func answer(ctx context.Context, runs *bide.Client, id string) {
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		if text := strings.TrimSpace(lines.Text()); text != "" {
			if err := runs.Signal(ctx, id, "answer", text); err != nil {
				fmt.Fprintln(os.Stderr, err)
			}
		}
	}
}
