package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/bide-dev/bide"
)

// lingerFor is how long a run that has ended stays in the table of bide watch.
const lingerFor = 30 * time.Second

func newWatch() *cobra.Command {
	var s selection
	c := &cobra.Command{
		Use:   "watch",
		Short: "Watch the runs that are alive, until Ctrl-C",
		Long: `Watch the runs that are alive, until Ctrl-C: on a terminal a table that is drawn over,
elsewhere a line for each change of what a run is at.`,
		Args: arguments(cobra.NoArgs, "bide watch [flags]"),
	}
	t, f := targetFlags(c), formatFlag(c)
	s.flags(c.Flags())
	c.RunE = func(c *cobra.Command, _ []string) error {
		q, err := s.query()
		if err != nil {
			return err
		}
		if *f == array {
			return usage("-o json: what is watched is no array; use -o jsonl")
		}
		ctx := c.Context()
		store, err := t.read(ctx)
		if err != nil {
			return err
		}
		defer store.Close()
		w := &watching{screen: newScreen(c.OutOrStdout()), store: store, query: q, format: *f, seen: map[string]*watched{}}
		if w.screen.live() && *f == table {
			newScreen(c.ErrOrStderr()).say("Watching; Ctrl-C ends it.")
		}
		if err := w.follow(ctx); ctx.Err() == nil {
			return err
		}
		return &endedError{exitInterrupted}
	}
	return c
}

// watching is what bide watch knows of the runs.
type watching struct {
	screen *screen
	store  bide.Store
	query  bide.Query
	format format
	seen   map[string]*watched
}

// watched is what was last printed of a run.
type watched struct {
	version int64
	said    string
	ended   bool
}

// follow shows the runs until ctx ends or the store fails.
func (w *watching) follow(ctx context.Context) error {
	wake, stop := changes(w.store, "")
	defer stop()
	defer w.screen.clear()
	ticker := time.NewTicker(drawEvery) // times go on without any change, and changes come in crowds
	defer ticker.Stop()
	for changed := true; ; {
		if changed || w.drawn() {
			runs, err := w.runs(ctx)
			if err != nil {
				return err
			}
			if err := w.show(runs); err != nil {
				return err
			}
			changed = false
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
			select {
			case <-wake:
				changed = true
			default:
			}
		}
	}
}

// drawn reports whether there is a table to keep up to date.
func (w *watching) drawn() bool { return w.screen.live() && w.format == table }

// watchedRuns is how many of the newest runs are watched.
const watchedRuns = 200

// runs reads the runs that are alive or have just ended.
func (w *watching) runs(ctx context.Context) ([]bide.Run, error) {
	runs, _, err := page(ctx, w.store, w.query, watchedRuns)
	now := time.Now()
	return slices.DeleteFunc(runs, func(r bide.Run) bool {
		return r.State.Ended() && len(w.query.States) == 0 && w.seen[r.ID] == nil && now.Sub(r.EndedAt) > lingerFor
	}), err
}

func (w *watching) show(runs []bide.Run) error {
	if w.drawn() {
		w.screen.draw(watchTable(runs, time.Now()))
		return nil
	}
	for i := range slices.Backward(runs) { // the oldest first
		r := &runs[i]
		line := w.seen[r.ID]
		if line == nil {
			line = &watched{}
			w.seen[r.ID] = line
		}
		if line.ended || r.Version == line.version {
			continue
		}
		line.version, line.ended = r.Version, r.State.Ended()
		if w.format == lines {
			if err := printJSON(w.screen.w, r); err != nil {
				return err
			}
			continue
		}
		if said := happening(r); said != line.said {
			line.said = said
			w.screen.say("%s %s: %s", time.Now().Format(time.TimeOnly), r.ID, said)
		}
	}
	return nil
}

// happening says what a run is at, without what changes all the time.
func happening(r *bide.Run) string {
	words := r.State.String()
	if r.State.Ended() {
		return strings.Join(append(standing(r, r.EndedAt), errorOf(r)...), ", ")
	}
	for _, w := range r.Waiting {
		if w.Kind == bide.KindQueue || w.Kind == bide.KindPause { // the state says it
			continue
		}
		words += ", " + strings.TrimSpace(w.Kind.String()+" "+w.Name)
	}
	if p := r.Progress; p != nil {
		words += fmt.Sprintf(", %.0f%% %s", p.Percent, p.Message)
	}
	return strings.TrimSpace(words)
}

func errorOf(r *bide.Run) []string {
	if r.Error == nil {
		return nil
	}
	return []string{r.Error.Message}
}

func watchTable(runs []bide.Run, now time.Time) string {
	if len(runs) == 0 {
		return "No run is alive."
	}
	var b strings.Builder
	tw := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "RUN\tSTATE\tAGE\tPROGRESS\tWHAT")
	for i := range runs {
		r := &runs[i]
		progress := ""
		if r.Progress != nil {
			percent := r.Progress.Percent
			if r.State == bide.Succeeded {
				percent = 100
			}
			progress = fmt.Sprintf("%s %3.0f%%", bar(percent), percent)
		}
		age := now.Sub(r.CreatedAt)
		if r.State.Ended() {
			age = r.EndedAt.Sub(r.CreatedAt)
		}
		fmt.Fprintln(tw, cells(r.ID, r.State.String(), short(age.Round(time.Second)), progress, summary(r, now)))
	}
	_ = tw.Flush() // into memory
	return strings.TrimSuffix(b.String(), "\n")
}
