package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path"
	"time"

	"github.com/spf13/cobra"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/server"
)

const demoFile = "bide-demo.db"

// demo is what bide demo runs: a server, a worker and runs of its own.
type demo struct {
	target
	addr  string
	job   time.Duration
	fresh bool
	show  *screen
}

func newDemo() *cobra.Command {
	d := &demo{}
	c := &cobra.Command{
		Use:   "demo",
		Short: "See it work: a server, a worker and live runs, in one file",
		Long: `See it work: a server, a worker and live runs, in one file of the current folder. A
research run waits for a job of another service, an approval waits for you, and a
loop asks a service that fails now and then.

Kill it whenever you like, by Ctrl-C or kill -9: the same command goes on with the
same runs.`,
		Args: arguments(cobra.NoArgs, "bide demo [flags]"),
		RunE: func(c *cobra.Command, _ []string) error { return d.run(c) },
	}
	c.Flags().StringVar(&d.db, "db", demoFile, "`FILE` that keeps the runs")
	c.Flags().StringVar(&d.addr, "addr", defaultAddr, "where to listen; port 0 is any free one")
	c.Flags().DurationVar(&d.job, "job", 45*time.Second, "how long the research job takes")
	c.Flags().BoolVar(&d.fresh, "fresh", false, "forget the earlier runs and begin anew")
	setting(c.Flags(), "addr")
	return c
}

func (d *demo) run(c *cobra.Command) error {
	if d.job <= 0 {
		return usage("--job %v: it must be above 0", d.job)
	}
	d.show = newScreen(c.ErrOrStderr())
	log := logTo(d.show, slog.LevelError)
	ctx, cancel := context.WithCancel(c.Context())
	defer cancel()
	store, err := d.write(ctx, true)
	if err != nil {
		return err
	}
	defer store.Close()
	s, err := newServer(&d.target, store, server.Config{Addr: d.addr, Logger: log})
	if err != nil {
		return err
	}
	var working chan error
	shown := make(chan struct{})
	err = runServer(ctx, &d.target, s, d.addr, func(url string) error {
		if err := announce(ctx, store, url); err != nil {
			return err
		}
		fmt.Fprintln(c.OutOrStdout(), url)
		worker := bide.NewWorker(s.Store(), bide.WorkerConfig{PublicURL: url, GracePeriod: 2 * time.Second, Logger: log})
		worker.Register(d.workflows(bide.NewClient(store).Loop(demoLoop))...)
		if err := d.begin(ctx, store); err != nil {
			return err
		}
		working = make(chan error, 1)
		go func() {
			defer cancel() // should it fail, there is nothing to serve
			working <- worker.Run(ctx)
		}()
		d.advise(url, approvalLink(ctx, store, url))
		w := &watching{screen: d.show, store: store, format: table, seen: map[string]*watched{}}
		go func() {
			defer close(shown)
			_ = w.follow(ctx) // should the store fail, the worker says so
		}()
		return nil
	})
	cancel()
	if working != nil {
		<-shown
		err = errors.Join(err, <-working)
	}
	if err == nil {
		d.show.say("Stopped; the same command goes on with what %s keeps.", d.db)
	}
	return err
}

// The runs, by their ids.
const (
	demoHello    = "demo-hello"
	demoResearch = "demo-research"
	demoApproval = "demo-approval"

	demoLoop = "demo-prices"
)

// begin starts the runs that are not there yet.
func (d *demo) begin(ctx context.Context, store bide.Store) error {
	again := bide.Existing
	if d.fresh {
		again = bide.Replace
	}
	created, err := store.Create(ctx, []bide.NewRun{
		{ID: demoHello, Workflow: demoHello, Queue: "default", Input: []byte(`"you"`), Conflict: again},
		{ID: demoResearch, Workflow: demoResearch, Queue: "default", Input: []byte(`"tea in 2026"`), Conflict: again},
		{ID: demoApproval, Workflow: demoApproval, Queue: "default", Input: []byte(`"buy a teapot"`), Conflict: again},
	})
	if err != nil {
		return err
	}
	resumed := false
	for _, run := range created {
		if run.Err != nil {
			return run.Err
		}
		resumed = resumed || !run.New
	}
	if resumed {
		d.show.say("The runs of %s go on, in process %d; --fresh begins anew.", d.db, os.Getpid())
	} else {
		d.show.say("Three runs and a loop begin in %s, in process %d.", d.db, os.Getpid())
	}
	return nil
}

// linkWithin is how long the link to the approval is waited for, which is there at
// once unless something else is wrong.
const linkWithin = 10 * time.Second

// approvalLink is the page at which a person answers the approval, "" if it is not
// open.
func approvalLink(ctx context.Context, store bide.Store, url string) string {
	ctx, cancel := context.WithTimeout(ctx, linkWithin)
	defer cancel()
	for run, err := range bide.NewClient(store).Watch(ctx, demoApproval) {
		if err != nil || run.State.Ended() || run.State == bide.Paused {
			return ""
		}
		var link string
		if json.Unmarshal(run.Values["link"], &link) == nil && link != "" {
			return url + approvalPath + path.Base(link) // the server may have listened elsewhere then
		}
	}
	return ""
}

// advise says what can be done.
func (d *demo) advise(url, link string) {
	flag := ""
	if url != defaultServer {
		flag = " --server " + url
	}
	d.show.say("")
	if link != "" {
		d.show.say("One of them waits for you; decide in a browser:")
		d.show.say("  %s", link)
		d.show.say("")
	}
	d.show.say("Try, in another terminal:")
	for _, line := range [][2]string{
		{program() + " list" + flag, "what each run waits for"},
		{program() + " show " + demoResearch + flag, "one of them; also history, stream"},
		{program() + " signal " + demoApproval + ` approval '{"approved":true}'` + flag, "answer the one that waits for you"},
		{program() + " loop show " + demoLoop + flag, "a loop that backs off"},
		{fmt.Sprintf("kill -9 %d", os.Getpid()), "then the same command again: nothing that is done is done twice"},
	} {
		d.show.say("  %s", line[0])
		d.show.say("      %s", line[1])
	}
	d.show.say("")
}
