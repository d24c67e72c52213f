package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/sqlite"
)

func newShow() *cobra.Command {
	c := &cobra.Command{
		Use:   "show ID",
		Short: "Show a run: first what it waits for",
		Long: `Show a run: first what it waits for, in words, then all that is known of it but its
history (bide history ID).`,
		Args: arguments(cobra.ExactArgs(1), "bide show ID"),
	}
	t, f := targetFlags(c), formatFlag(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		store, err := t.read(c.Context())
		if err != nil {
			return err
		}
		defer store.Close()
		run, err := store.Run(c.Context(), args[0])
		if err != nil {
			return t.explain(args[0], err)
		}
		if *f != table {
			return printJSON(c.OutOrStdout(), run)
		}
		stuck := run.State == bide.Canceling && !t.mayBeServed(c.Context(), store, &run)
		if err := printRun(c.OutOrStdout(), &run, time.Now(), stuck); err != nil {
			return err
		}
		if tip := t.advice(&run, stuck); tip != "" {
			newScreen(c.ErrOrStderr()).say("%s", tip)
		}
		return nil
	}
	return c
}

// shown is how much of a payload is shown to people; -o json has it whole.
const shown = 300

// printRun prints all of a run; stuck says that nobody is there who would cancel it.
func printRun(w io.Writer, r *bide.Run, now time.Time, stuck bool) error {
	lines := standing(r, now)
	if stuck {
		lines = []string{fmt.Sprintf("canceling; no worker is there that serves workflow %s, queue %s", r.Workflow, r.Queue)}
	}
	for _, line := range lines {
		fmt.Fprintln(w, plain(line))
	}
	fmt.Fprintln(w)
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(name, value string) {
		if value != "" {
			fmt.Fprintf(tw, "%s\t%s\n", name, plain(value))
		}
	}
	when := func(t time.Time) string {
		switch {
		case t.IsZero():
			return ""
		case t.After(now):
			return fmt.Sprintf("%s, in %s", t.Local().Format(time.DateTime), short(t.Sub(now)))
		}
		return fmt.Sprintf("%s, %s ago", t.Local().Format(time.DateTime), short(now.Sub(t)))
	}
	payload := func(data json.RawMessage) string { return cutTo(string(data), shown) }
	row("run", r.ID)
	row("workflow", r.Workflow)
	row("queue", r.Queue)
	row("state", r.State.String())
	row("created", when(r.CreatedAt))
	row("started", when(r.StartedAt))
	row("ended", when(r.EndedAt))
	row("deadline", when(r.Deadline))
	row("progress", progressOf(r))
	row("parent", r.Parent)
	for _, key := range slices.Sorted(maps.Keys(r.Labels)) {
		row("label", key+"="+r.Labels[key])
	}
	if r.Generation > 0 {
		row("continued", count(r.Generation, "time"))
	}
	row("input", payload(r.Input))
	for _, key := range slices.Sorted(maps.Keys(r.Values)) {
		row("value "+key, payload(r.Values[key]))
	}
	row("result", payload(r.Result))
	if e := r.Error; e != nil {
		row("error", strings.TrimPrefix(e.Code+": ", ": ")+e.Message)
	}
	return tw.Flush()
}

// standing says in words where a run stands: a line for each thing it waits for.
func standing(r *bide.Run, now time.Time) []string {
	var waits []string
	for _, w := range r.Waiting {
		waits = append(waits, w.Describe(now))
	}
	switch {
	case r.State.Ended():
		return []string{fmt.Sprintf("%s after %s", stateWord(r.State), short(r.EndedAt.Sub(r.CreatedAt)))}
	case r.State == bide.Canceling:
		return append([]string{"canceling"}, waits...)
	case len(waits) > 0:
		return waits
	}
	return []string{"running"}
}

func stateWord(s bide.State) string { return strings.ReplaceAll(s.String(), "_", " ") }

// progressOf is the progress with a bar.
func progressOf(r *bide.Run) string {
	p := r.Progress
	if p == nil {
		return ""
	}
	words := []string{bar(p.Percent), fmt.Sprintf("%3.0f%%", p.Percent)}
	if s := p.Step; s != nil {
		words = append(words, strings.TrimSpace(fmt.Sprintf("step %d of %d %s", s.Index, s.Count, s.Name)))
	}
	return strings.TrimSpace(strings.Join(append(words, p.Message), " "))
}

const barWidth = 20

func bar(percent float64) string {
	full := int(min(max(percent, 0), 100) / 100 * barWidth)
	return strings.Repeat("█", full) + strings.Repeat("░", barWidth-full)
}

// mayBeServed reports whether there may be a worker for a run. Of a file that another
// program has only that program knows.
func (t *target) mayBeServed(ctx context.Context, store bide.Store, r *bide.Run) bool {
	if t.db == "" || isPostgres(t.db) {
		return served(ctx, store, r.Queue, r.Workflow)
	}
	owner, err := sqlite.Open(t.db)
	if err != nil {
		return true
	}
	_ = owner.Close()
	return false
}

// advice is what can be done about how a run stands, "" if nothing need be.
func (t *target) advice(r *bide.Run, stuck bool) string {
	if stuck {
		return fmt.Sprintf("Start one, or %s ends it at once.", t.change("terminate", r.ID))
	}
	switch r.State {
	case bide.Failed, bide.TimedOut, bide.Canceled, bide.Terminated:
		return fmt.Sprintf("%s shows what it did; %s lets it try again from where it failed.",
			t.command("history", r.ID), t.change("retry", r.ID))
	case bide.Paused:
		return t.change("resume", r.ID) + " lets it go on."
	}
	for _, w := range r.Waiting {
		switch w.Kind {
		case bide.KindReceive:
			return fmt.Sprintf("%s answers it.", t.change("signal", r.ID, w.Name, "JSON"))
		case bide.KindPoll, bide.KindRetry:
			return fmt.Sprintf("%s looks now.", t.change("check", r.ID, w.Name))
		case bide.KindQueue:
			return t.command("doctor") + " says whether anyone works on it."
		}
	}
	return ""
}
