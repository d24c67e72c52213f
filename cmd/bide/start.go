package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/bide-dev/bide"
)

// startFlags are the command line of bide start.
type startFlags struct {
	input, id, queue string
	labels           []string
	timeout, delay   time.Duration
	wait             bool
}

func newStart() *cobra.Command {
	var f startFlags
	c := &cobra.Command{
		Use:   "start WORKFLOW",
		Short: "Start a run of a workflow",
		Long: `Start a run of a workflow and print its id. A worker that serves the workflow takes
it up; until there is one, the run is queued. With --id the same command again
finds the run that is there, and starts no second one.

With --wait it prints the run's result instead, once there is one, and the exit
code says how the run ended.`,
		Example: `  bide start research --input '"tea in 2026"' --id research-tea --wait
  bide start order --input @order.json --label customer=7 --db bide.db`,
		Args: arguments(cobra.ExactArgs(1), "bide start WORKFLOW [flags]"),
	}
	t, out := targetFlags(c), formatFlag(c)
	flags := c.Flags()
	flags.StringVar(&f.input, "input", "null", "`JSON`, @FILE that holds it, or - for stdin")
	flags.StringVar(&f.id, "id", "", "the run's id, unique in the store (default: one is made)")
	flags.StringVar(&f.queue, "queue", "default", "`NAME` of the queue whose workers take it")
	flags.StringArrayVar(&f.labels, "label", nil, "`KEY=VALUE` to find it by; can be given many times")
	flags.DurationVar(&f.timeout, "timeout", 0, "the run times out after so long (default: never)")
	flags.DurationVar(&f.delay, "delay", 0, "the run begins only after so long")
	flags.BoolVar(&f.wait, "wait", false, "wait for the result and print it")
	c.RunE = func(c *cobra.Command, args []string) error { return f.start(c, t, *out, args[0]) }
	return c
}

// anyWorkflow is a workflow that is known by its name only.
func anyWorkflow(name string) *bide.Workflow[json.RawMessage, json.RawMessage] {
	return bide.Define(name, func(bide.Context, json.RawMessage) (json.RawMessage, error) { return nil, nil })
}

func (f *startFlags) start(c *cobra.Command, t *target, out format, name string) error {
	if name == "" || strings.ContainsFunc(name, func(r rune) bool { return r < ' ' }) {
		return usage("WORKFLOW %q: is no name of a workflow", name)
	}
	input, err := payload(c.InOrStdin(), "--input", f.input)
	if err != nil {
		return err
	}
	options, err := f.options(c)
	if err != nil {
		return err
	}
	ctx := c.Context()
	store, err := t.write(ctx, true)
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }()
	workflow := anyWorkflow(name)
	run, err := workflow.Start(ctx, bide.NewClient(store), input, options...)
	invalid, isInvalid := errors.AsType[*bide.InvalidError](err)
	switch taken, isTaken := errors.AsType[*bide.ConflictError](err); {
	case isInvalid && !isRefused(err):
		return usage("--%s: %s", invalid.Field, invalid.Reason) // its fields are named as the flags are
	case isTaken:
		return usage("--id %s: is taken by a run of another workflow or with another input; %s shows it, another id starts another",
			quote(taken.ID), t.command("show", taken.ID))
	case err != nil:
		return err
	}
	show := newScreen(c.ErrOrStderr())
	if !run.New() {
		show.say("Run %s was there already.", run.ID())
	} else if !served(ctx, store, f.queue, name) {
		show.say("No worker serves workflow %s in queue %s yet; the run is queued until one does.", name, f.queue)
	}
	if f.wait {
		if err := store.Close(); err != nil { // a file must be free for a worker
			return err
		}
		if store, err = t.read(ctx); err != nil {
			return err
		}
		return await(c, t, store, out, run.ID())
	}
	if out != table {
		return printJSON(c.OutOrStdout(), struct {
			ID  string `json:"id"`
			New bool   `json:"new"`
		}{run.ID(), run.New()})
	}
	_, err = fmt.Fprintln(c.OutOrStdout(), run.ID())
	return err
}

func (f *startFlags) options(c *cobra.Command) ([]bide.StartOption, error) {
	labels, err := parseLabels(f.labels)
	if err != nil {
		return nil, err
	}
	options := []bide.StartOption{bide.Queue(f.queue)}
	if len(labels) > 0 {
		options = append(options, bide.Labels(labels))
	}
	if c.Flags().Changed("id") {
		options = append(options, bide.ID(f.id))
	}
	if c.Flags().Changed("timeout") {
		options = append(options, bide.Timeout(f.timeout))
	}
	if c.Flags().Changed("delay") {
		options = append(options, bide.Delay(f.delay))
	}
	return options, nil
}

// payload reads JSON as a flag or argument gives it: itself, @FILE, or - for stdin.
func payload(stdin io.Reader, what, text string) (json.RawMessage, error) {
	data := []byte(text)
	var err error
	if file, ok := strings.CutPrefix(text, "@"); ok {
		data, err = os.ReadFile(file)
	} else if text == "-" {
		data, err = io.ReadAll(io.LimitReader(stdin, bide.MaxPayload+1))
	}
	if err != nil {
		return nil, usage("%s: %w", what, err)
	}
	if !json.Valid(data) {
		return nil, usage("%s: %s is not JSON; a text is written '\"text\"', a file @FILE", what, cutTo(plain(text), 40))
	}
	return data, nil
}

// served reports whether a worker is known that serves the workflow; it is so too
// if that cannot be known.
func served(ctx context.Context, store bide.Store, queue, workflow string) bool {
	admin, ok := store.(bide.Admin)
	if !ok {
		return true
	}
	status, err := admin.Status(ctx)
	return err != nil || slices.ContainsFunc(status.Workers, func(w bide.WorkerInfo) bool {
		return slices.Contains(w.Queues, queue) && slices.Contains(w.Workflows, workflow)
	})
}
