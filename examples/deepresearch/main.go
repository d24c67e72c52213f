// Deepresearch hands a job of minutes to a service and waits for it in two ways at
// once: the service calls a webhook when it is done, and a poll asks every 10 s in
// case that call is lost. A job that takes too long is put before a person.
//
//	go run ./examples/deepresearch "tea in 2026"
//
// Kill it at any moment (Ctrl-C or kill -9) and give the same command again: the
// job has gone on meanwhile, and so does the run. Also try:
//
//	-patience 8s    a person is asked (answer with the curl line that is printed)
//	-job 5m         a job of real length
//	-fresh          forget the earlier run on this topic
//
// Needs nothing else: the service is started on a loopback port (service.go).
// Read workflow.go first.
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

func main() {
	db := flag.String("db", "deepresearch.db", "the file that keeps the runs; the service's jobs are put beside it")
	listen := flag.String("listen", "127.0.0.1:8741", "where webhooks and decisions are taken")
	job := flag.Duration("job", 25*time.Second, "how long a new job takes")
	patience := flag.Duration("patience", 10*time.Minute, "how long it may take before a person is asked")
	fresh := flag.Bool("fresh", false, "forget the earlier run on this topic and begin anew")
	flag.Parse()
	topic := strings.Join(flag.Args(), " ")
	if topic == "" {
		topic = "tea in 2026"
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	context.AfterFunc(ctx, stop) // a second Ctrl-C kills
	if err := research(ctx, *db, *listen, topic, *job, *patience, *fresh); err != nil {
		fmt.Fprintln(os.Stderr, "deepresearch:", err)
		os.Exit(1)
	}
}

func research(ctx context.Context, db, listen, topic string, job, patience time.Duration, fresh bool) error {
	store, err := sqlite.Open(db) // first: it keeps a second process out
	if err != nil {
		return err
	}
	defer store.Close()
	service, err := openService(strings.TrimSuffix(db, ".db")+".jobs.json", job, http.DefaultClient)
	if err != nil {
		return err
	}
	serviceURL, err := serve("127.0.0.1:0", service)
	if err != nil {
		return err
	}

	runs, id := bide.NewClient(store), "deepresearch-"+strings.ReplaceAll(topic, " ", "-")
	public := http.NewServeMux()
	public.Handle("/v1/hooks/", webhook.NewHandler(store, webhook.Config{}))
	public.HandleFunc("POST /decision", func(w http.ResponseWriter, r *http.Request) {
		if err := takeDecision(r, runs, id); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
		}
	})
	publicURL, err := serve(listen, public)
	if err != nil {
		return err
	}

	ask := func(question string) {
		fmt.Printf("\n%s\nWait longer, use a text of yours, or give up:\n", question)
		for _, answer := range []string{"action=wait -d for=1m", "action=use -d text=enough", "action=give+up"} {
			fmt.Printf("  curl %s/decision -d %s\n", publicURL, answer)
		}
	}
	workflow := (&researcher{&client{serviceURL, http.DefaultClient}, ask, patience, 24 * time.Hour}).workflow()
	again := bide.Existing // one id is one run, however often it is started
	if fresh {
		again = bide.Replace
	}
	run, err := workflow.Start(ctx, runs, topic, bide.ID(id), again)
	if err != nil {
		return err
	}
	fmt.Printf("Run %s, new: %t, in process %d. Stop or kill it when you like, then give the same command again.\n", id, run.New(), os.Getpid())

	worker := bide.NewWorker(store, bide.WorkerConfig{PublicURL: publicURL})
	worker.Register(workflow)
	var report Report
	err = worker.While(ctx, func(ctx context.Context) (err error) {
		report, err = run.Result(ctx, bide.TerminalProgress(os.Stderr))
		return err
	})
	switch {
	case ctx.Err() != nil:
		fmt.Println("Stopped. The same command goes on.")
		return nil
	case err != nil:
		return fmt.Errorf("%w (-fresh begins anew)", err)
	}
	fmt.Printf("%s (by %s)\n", report.Text, report.By)
	return nil
}

// takeDecision hands a person's word to the run, which may not even have asked yet.
func takeDecision(r *http.Request, runs *bide.Client, id string) error {
	d := decision{Action: r.FormValue("action"), Text: r.FormValue("text")}
	switch d.Action {
	case "use", "give up":
	case "wait":
		wait, err := time.ParseDuration(r.FormValue("for"))
		if err != nil || wait <= 0 {
			return errors.New(`want for=1m, a duration`)
		}
		d.Wait = wait
	default:
		return errors.New("want action=wait, use or give up")
	}
	return runs.Signal(r.Context(), id, "decision", d)
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
