// Research is an agent that outlives its process. It asks a model what to search
// for, searches side by side, hands a long job to a deep-research service, waits
// until it is done, and has the model write the report.
//
// Start it, and do your worst while it works:
//
//	go run ./examples/research "tea in 2026"
//
//	Ctrl-C          the worker stops with grace; the run stays in research.db
//	kill -9 PID     no grace at all (it prints its PID)
//
// Then give the same command again: the run goes on at the first step that has
// no kept result, and the table at the end shows that nothing finished was paid
// for twice. Once more, and the report is there at once. Also try:
//
//	-job 5m         a job of real length: it goes on while the program is dead
//	-fresh          forget the earlier run on this topic
//
// Needs nothing else: the model and the search engine are a small HTTP service
// that the program starts on 127.0.0.1 (service.go), a moody one that answers
// 503 and 429 now and then. Read workflow.go first.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"time"
	"unicode"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/sqlite"
)

func main() {
	db := flag.String("db", "research.db", "the file that keeps the runs; ledger and reports are put beside it")
	job := flag.Duration("job", 9*time.Second, "how long the deep-research job takes")
	fresh := flag.Bool("fresh", false, "forget the earlier run on this topic and begin anew")
	flag.Parse()
	topic := strings.Join(flag.Args(), " ")
	if topic == "" {
		topic = "durable execution"
	}

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	context.AfterFunc(ctx, stop) // a second Ctrl-C kills
	if err := research(ctx, *db, topic, *job, *fresh); err != nil {
		fmt.Fprintln(os.Stderr, "research:", err)
		os.Exit(1)
	}
}

func research(ctx context.Context, db, topic string, job time.Duration, fresh bool) error {
	store, err := sqlite.Open(db) // first: it keeps a second process out
	if err != nil {
		return err
	}
	defer store.Close()

	ledger, err := openLedger(strings.TrimSuffix(db, ".db") + ".ledger.jsonl")
	if err != nil {
		return err
	}
	defer ledger.Close()
	url, err := serve(newService(ledger, job))
	if err != nil {
		return err
	}

	agent := &researcher{
		api:   &client{url: url, http: http.DefaultClient},
		dir:   filepath.Dir(db),
		every: min(max(job/10, 50*time.Millisecond), 10*time.Second),
	}
	workflow := agent.workflow()
	runs := bide.NewClient(store)
	again := bide.Existing // one id is one run, however often it is started
	if fresh {
		again = bide.Replace
	}
	run, err := workflow.Start(ctx, runs, topic, bide.ID("research-"+slug(topic)), again)
	if err != nil {
		return err
	}
	if err := greet(ctx, runs, run); err != nil {
		return err
	}

	worker := bide.NewWorker(store, bide.WorkerConfig{})
	worker.Register(workflow)
	var report Report
	err = worker.While(ctx, func(ctx context.Context) (err error) {
		report, err = run.Result(ctx, bide.TerminalProgress(os.Stderr))
		return err
	})
	switch {
	case ctx.Err() != nil:
		fmt.Printf("Stopped. Run %s is kept in %s; the same command goes on with it.\n", run.ID(), db)
		return nil
	case err != nil:
		return fmt.Errorf("%w (-fresh begins anew)", err)
	}
	fmt.Printf("\n%s\nSaved as %s.\n\n", report.Text, report.File)
	now, err := run.Get(ctx)
	if err != nil {
		return err
	}
	return ledger.print(os.Stdout, now.CreatedAt)
}

// greet says whether the run is new, resumed or done before, and what is kept.
func greet(ctx context.Context, runs *bide.Client, run *bide.Handle[Report]) error {
	if run.New() {
		fmt.Printf("Run %s begins in process %d. Stop or kill it when you like, then give the same command again.\n", run.ID(), os.Getpid())
		return nil
	}
	now, err := run.Get(ctx)
	if err != nil {
		return err
	}
	if now.State.Ended() {
		fmt.Printf("Run %s ended before (%s), nothing is done again; -fresh begins anew.\n", run.ID(), now.State)
		return nil
	}
	history, err := runs.History(ctx, run.ID(), 0)
	if err != nil {
		return err
	}
	fmt.Printf("Run %s is resumed in process %d. Done before, and not done again: %d.\n", run.ID(), os.Getpid(), len(history))
	for _, r := range history {
		fmt.Printf("  %-5s %s (%v)\n", r.Kind, r.Name, r.Took.Round(time.Millisecond))
	}
	return nil
}

// serve puts the service on a free port of this machine and returns its URL.
func serve(s *service) (url string, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	go func() { log.Println("the job service ended:", http.Serve(l, s)) }()
	return "http://" + l.Addr().String(), nil
}

// slug makes a topic fit for run ids and file names.
func slug(topic string) string {
	words := strings.FieldsFunc(strings.ToLower(topic), func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r)
	})
	return strings.Join(words, "-")
}
