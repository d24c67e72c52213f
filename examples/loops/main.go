// Loops is a dashboard of four loops of different kinds: weather at an interval,
// news as often as there is some, stocks while the market is open, and a digest at
// times of the calendar that is a workflow run of its own.
//
//	go run ./examples/loops
//
// Kill it at any moment (Ctrl-C or kill -9) and give the same command again: each
// loop knows when it last ran and how often it failed. A minute of the loops is a
// second here; -minute 1m makes it one. The digest comes each full minute, and the
// market closes for the last 20 s of it.
//
// Needs nothing else: a flaky service is started on a loopback port (service.go).
// Read workflow.go first.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"text/tabwriter"
	"time"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/cron"
	"github.com/bide-dev/bide/sqlite"
)

func main() {
	db := flag.String("db", "loops.db", "the file that keeps the loops")
	minute := flag.Duration("minute", time.Second, "how long a minute of the loops is")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	context.AfterFunc(ctx, stop) // a second Ctrl-C kills
	if err := run(ctx, *db, *minute); err != nil {
		fmt.Fprintln(os.Stderr, "loops:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, db string, minute time.Duration) error {
	store, err := sqlite.Open(db) // first: it keeps a second process out
	if err != nil {
		return err
	}
	defer store.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	go http.Serve(l, newService(minute/5, func(t time.Time) string {
		return "headline of " + t.Truncate(20*time.Second).Format(time.TimeOnly)
	}))

	runs := bide.NewClient(store)
	d := &dashboard{
		api:    &client{"http://" + l.Addr().String(), http.DefaultClient},
		runs:   runs,
		minute: minute,
		open:   func(t time.Time) bool { return t.Second() < 40 },
		digest: cron.MustParse("* * * * *"),
	}
	worker := bide.NewWorker(store, bide.WorkerConfig{Logger: slog.New(slog.DiscardHandler)}) // the table says it all
	worker.Register(d.definitions()...)
	stopped := make(chan error, 1)
	go func() { stopped <- worker.Run(ctx) }()
	for {
		select {
		case err := <-stopped:
			return err
		case <-time.After(time.Second):
		}
		fmt.Print("\033[H\033[2J") // home and clear
		if err := table(ctx, os.Stdout, runs); err != nil && ctx.Err() == nil {
			return err
		}
	}
}

// table shows where the loops stand.
func table(ctx context.Context, w io.Writer, runs *bide.Client) error {
	loops, err := runs.Loops(ctx)
	if err != nil {
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "loop\truns\tinterval\tnext in\tlast outcomes\tvalue")
	for _, l := range loops {
		var value string
		if _, err := runs.Loop(l.Name).Value(ctx, "value", &value); err != nil {
			return err
		}
		next := max(time.Until(l.NextAt), 0).Round(time.Second / 10).String()
		interval := "by the clock"
		if l.Interval > 0 {
			interval = l.Effective.Round(time.Millisecond).String()
		}
		if l.Skipped != "" {
			next += " (" + l.Skipped + ")"
		}
		last := l.Outcomes[max(len(l.Outcomes)-20, 0):]
		fmt.Fprintf(t, "%s\t%d\t%s\t%s\t%s\t%s\n", l.Name, l.Iterations, interval, next, last, value)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err = fmt.Fprintln(w, "\nc changed, u unchanged, s succeeded, f failed, - skipped")
	return err
}
