package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/probe"
	"github.com/bide-dev/bide/sqlite"
)

// pollFlags are the command line of bide poll.
type pollFlags struct {
	until, failWhen, progress, eta string
	method, data                   string
	headers                        []string
	strategy                       string
	every, timeout, requestTimeout time.Duration
	maxAttempts                    int
	db, name, id                   string
	fresh, json                    bool
	output                         *format
}

const defaultTimeout = 10 * time.Minute

func newPoll() *cobra.Command {
	var f pollFlags
	c := &cobra.Command{
		Use:   "poll URL",
		Short: "Ask a URL again and again until it says what is waited for",
		Long: `Ask a URL again and again until it says what is waited for, and print its last
answer. Without --until the status says it: 202 is not yet, any other 2xx is the
end. Refusals and outages are waited out, and the service's Retry-After is heeded.

Conditions are CEL (https://cel.dev). They can ask for status, headers (names in
lower case), body (the JSON), text (the body as text), attempt and elapsed:

  --until 'body.status == "completed"'
  --until 'body.items.exists(i, i.id == 7 && i.ready == true)'
  --until 'status == 404'                      wait until it is gone
  --fail-when 'body.status in ["failed", "canceled"]'

URL, headers and data may refer to environment variables: --header
'Authorization: Bearer ${env:TOKEN}' (in single quotes). What they hold is sent
and never kept or shown.

With --db the wait outlives the program: after Ctrl-C, kill -9 or a reboot the same
command goes on where it was.

Exit codes: 0 it came, 1 error, 2 wrong command line, 4 it has failed, 5 it did not
come in time, 130 interrupted.`,
		Example: `  bide poll https://api.example.org/jobs/7 --until 'body.status == "completed"' --every 10s --timeout 10m
  bide poll https://api.example.org/jobs/7 --strategy exponential --timeout 0 --db waits.db -o json`,
		Args: arguments(cobra.ExactArgs(1), "bide poll URL [flags]"),
		RunE: func(c *cobra.Command, args []string) error {
			in, err := f.input(c, args[0])
			if err != nil {
				return err
			}
			return f.poll(c, in)
		},
	}
	flags := c.Flags()
	flags.SortFlags = false
	flags.StringVar(&f.until, "until", "", "wait until this `CONDITION` (CEL) is true of a 2xx")
	flags.StringVar(&f.failWhen, "fail-when", "", "give up when this `CONDITION` (CEL) is true of an answer")
	flags.DurationVar(&f.every, "every", 0, "interval between two checks (default 10s; of a strategy: its shortest, 1s)")
	flags.DurationVar(&f.timeout, "timeout", defaultTimeout, "give up after so long; 0 is never")
	flags.StringVar(&f.strategy, "strategy", "fixed", "`fixed`, exponential, elapsed or eta: how the interval changes")
	flags.IntVar(&f.maxAttempts, "max-attempts", 0, "give up after so many checks; 0 is no bound")
	flags.StringArrayVarP(&f.headers, "header", "H", nil, "`'Name: value'` to send; can be given many times")
	flags.StringVarP(&f.method, "method", "X", "", "GET, HEAD or POST (default GET; with --data POST)")
	flags.StringVarP(&f.data, "data", "d", "", "body to send, JSON unless a header says otherwise")
	flags.DurationVar(&f.requestTimeout, "request-timeout", 30*time.Second, "give up on one request after so long")
	flags.StringVar(&f.progress, "progress", "", "`EXPRESSION` (CEL) that says how many per cent are done")
	flags.StringVar(&f.eta, "eta", "", "`EXPRESSION` (CEL) that says when it will be done, for --strategy eta")
	flags.StringVar(&f.db, "db", "", "`FILE` that keeps the wait, so that it can be taken up again")
	flags.StringVar(&f.id, "id", "", "id of the wait in the file (default: made of what is waited for)")
	flags.StringVar(&f.name, "name", "", "what to call it in messages (default: the URL)")
	flags.BoolVar(&f.fresh, "fresh", false, "begin anew, should the file know this wait already")
	f.output = formatFlag(c)
	flags.Lookup("output").Usage = "`FORMAT`: table prints the answer; json and jsonl one object: state, attempts, elapsed_ms, status, body"
	flags.BoolVar(&f.json, "json", false, "the same as -o json")
	setting(flags, "db")
	return c
}

// pollInput is a wait as it is kept: the same command makes the same one.
type pollInput struct {
	Name        string         `json:"name"`
	Spec        probe.Spec     `json:"spec"`
	Strategy    string         `json:"strategy"`
	Every       probe.Duration `json:"every"`
	Timeout     probe.Duration `json:"timeout"`
	MaxAttempts int            `json:"max_attempts"`
}

// input checks the command line.
func (f *pollFlags) input(c *cobra.Command, url string) (pollInput, error) {
	headers, err := parseHeaders(f.headers)
	if err != nil {
		return pollInput{}, err
	}
	if f.method == "" && f.data != "" {
		f.method = http.MethodPost
	}
	if f.every == 0 && !c.Flags().Changed("every") {
		f.every = time.Second
		if f.strategy == "fixed" {
			f.every = 10 * time.Second
		}
	}
	if f.maxAttempts > 0 && !c.Flags().Changed("timeout") {
		f.timeout = 0
	}
	in := pollInput{
		Name:     f.name,
		Strategy: f.strategy, Every: probe.Duration(f.every), Timeout: probe.Duration(f.timeout), MaxAttempts: f.maxAttempts,
		Spec: probe.Spec{URL: url, Method: strings.ToUpper(f.method), Headers: headers, Body: f.data, Until: f.until,
			Progress: f.progress, ETA: f.eta, Timeout: probe.Duration(f.requestTimeout)},
	}
	if in.Name == "" {
		in.Name = place(url)
	}
	if f.failWhen != "" {
		in.Spec.Accept = []probe.Acceptor{{State: probe.Failure, When: f.failWhen}}
	}
	switch {
	case f.every < 10*time.Millisecond:
		return in, usage("--every %v: it must be at least 10ms; give others' services 1s and more", f.every)
	case f.timeout < 0:
		return in, usage("--timeout %v: is negative; 0 is never", f.timeout)
	case f.requestTimeout <= 0:
		return in, usage("--request-timeout %v: it must be above 0", f.requestTimeout)
	case f.maxAttempts < 0:
		return in, usage("--max-attempts %d: is negative; 0 is no bound", f.maxAttempts)
	case f.strategy == "eta" && f.eta == "" && f.progress == "":
		return in, usage("--strategy eta: needs --eta or --progress, to know what is left")
	case isPostgres(f.db):
		return in, usage("--db %s: a wait of bide poll is kept in a file; --db '' keeps none", shownDB(f.db))
	case f.db == "" && (f.id != "" || f.fresh):
		return in, usage("--id and --fresh are about what a file keeps; give --db FILE too")
	}
	_, err = in.interval()
	return in, err
}

// interval is the strategy as an option.
func (in *pollInput) interval() (bide.PollOption, error) {
	every := time.Duration(in.Every)
	switch in.Strategy {
	case "fixed":
		return bide.Every(every), nil
	case "exponential":
		return bide.Exponential{Interval: every, Max: max(30*time.Second, every)}, nil
	case "elapsed":
		return bide.Elapsed{Min: every, Max: max(time.Minute, every)}, nil
	case "eta":
		return bide.ETA{Min: every, Max: max(time.Minute, every)}, nil
	}
	return nil, usage("--strategy %q: it must be fixed, exponential, elapsed or eta", in.Strategy)
}

func (in *pollInput) options() []bide.PollOption {
	interval, _ := in.interval() // has been checked
	options := []bide.PollOption{interval, bide.MinInterval(min(time.Duration(in.Every), time.Second)), bide.MaxAttempts(in.MaxAttempts)}
	if in.Timeout > 0 {
		return append(options, bide.Timeout(in.Timeout))
	}
	return append(options, bide.NoTimeout{})
}

// runID is the same for the same input.
func (in *pollInput) runID() (string, error) {
	data, err := json.Marshal(in) // a map's keys are sorted
	sum := sha256.Sum256(data)
	return "poll-" + hex.EncodeToString(sum[:6]), err
}

// poll waits as a run of its own, in the file or in memory.
func (f *pollFlags) poll(c *cobra.Command, in pollInput) error {
	p, err := probe.New(in.Spec)
	if err != nil {
		return inFlags(err)
	}
	id := f.id
	if id == "" {
		if id, err = in.runID(); err != nil {
			return err
		}
	}
	file := f.db
	if file == "" {
		file = ":memory:"
	}
	store, err := sqlite.Open(file)
	if inUse, ok := errors.AsType[*sqlite.InUseError](err); ok {
		return said(fmt.Sprintf("%s belongs to process %d (%s): name another file, or --db '' for none", f.db, inUse.Owner.PID, inUse.Owner.Program), err)
	} else if err != nil {
		return err
	}
	defer store.Close()
	client := bide.NewClient(store)

	show := newScreen(c.ErrOrStderr())
	line := &pollLine{screen: show, bound: time.Duration(in.Timeout)}
	// A queue of its own: other waits in the file stay as they are.
	queue := bide.Queue(id)
	workflow := bide.Define("bide-poll", func(ctx bide.Context, in pollInput) (probe.Observation, error) {
		return p.Poll(ctx, in.Name, append(in.options(), bide.OnCheck(line.checked))...)
	}, queue)
	again := bide.Existing
	if f.fresh {
		again = bide.Replace
	}
	ctx := c.Context()
	started, err := workflow.Start(ctx, client, in, bide.ID(id), again)
	if conflict, ok := errors.AsType[*bide.ConflictError](err); ok {
		return usage("--id %s: in %s this is another wait; take another id, or --fresh to replace it", conflict.ID, f.db)
	} else if err != nil {
		return inFlags(err)
	}
	if line.began, err = f.greet(ctx, show, in, started); err != nil {
		return err
	}

	worker := bide.NewWorker(store, bide.WorkerConfig{Queues: []string{id}, GracePeriod: 2 * time.Second,
		Logger: slog.New(slog.NewTextHandler(show, &slog.HandlerOptions{Level: slog.LevelWarn}))})
	worker.Register(workflow)
	working, stopWorker := context.WithCancel(ctx)
	stopped := make(chan error, 1)
	go func() {
		defer stopWorker() // should it fail, there is nothing to wait for
		stopped <- worker.Run(working)
	}()
	stopDrawing := show.redraw(line.now)
	o, err := started.Result(working)
	stopWorker()
	werr := <-stopped
	stopDrawing()
	if werr != nil {
		return werr
	}
	return f.report(c, show, client, id, o, err)
}

// greet says what is waited for, and whether it is taken up again. It returns when
// it began.
func (f *pollFlags) greet(ctx context.Context, show *screen, in pollInput, started *bide.Handle[probe.Observation]) (time.Time, error) {
	bound := "for as long as it takes"
	switch {
	case in.Timeout > 0:
		bound = "for at most " + short(time.Duration(in.Timeout))
	case in.MaxAttempts > 0:
		bound = fmt.Sprintf("%d times at most", in.MaxAttempts)
	}
	show.say("Polling %s %s.", in.Name, bound)
	run, err := started.Get(ctx)
	if err != nil || f.db == "" {
		return run.CreatedAt, err
	}
	switch {
	case started.New():
		show.say("Kept in %s as %s: after Ctrl-C or a crash the same command goes on.", f.db, run.ID)
	case run.State.Ended():
		show.say("%s in %s ended at %s, this is what it came to; --fresh begins anew.", run.ID, f.db, run.EndedAt.Local().Format(time.DateTime))
	default:
		attempts := 0
		for _, w := range run.Waiting {
			attempts = max(attempts, w.Attempt)
		}
		show.say("Resumed %s from %s, begun at %s; %s made so far.", run.ID, f.db, run.CreatedAt.Local().Format(time.DateTime), count(attempts, "check"))
	}
	return run.CreatedAt, nil
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// place is a URL as it can be shown: without user, query and fragment.
func place(url string) string {
	url, _, _ = strings.Cut(url, "#")
	url, _, _ = strings.Cut(url, "?")
	scheme, rest, ok := strings.Cut(url, "://")
	if !ok {
		return url
	}
	authority, path, _ := strings.Cut(rest, "/")
	if at := strings.LastIndex(authority, "@"); at >= 0 {
		authority = authority[at+1:]
	}
	return scheme + "://" + authority + strings.TrimSuffix("/"+path, "/")
}
