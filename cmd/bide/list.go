package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/bide-dev/bide"
)

// selection are the flags that select runs.
type selection struct {
	states   []string
	labels   []string
	workflow string
	queue    string
}

func (s *selection) flags(flags *pflag.FlagSet) {
	flags.StringSliceVar(&s.states, "state", nil, "only runs in these `STATES`, as in waiting,paused")
	flags.StringVar(&s.workflow, "workflow", "", "only runs of the workflow of this `NAME`")
	flags.StringVar(&s.queue, "queue", "", "only runs of the queue of this `NAME`")
	flags.StringArrayVar(&s.labels, "label", nil, "only runs with this label, `KEY=VALUE`; can be given many times")
}

func (s *selection) query() (bide.Query, error) {
	q := bide.Query{Workflow: s.workflow, Queue: s.queue}
	for _, name := range s.states {
		var state bide.State
		if err := state.UnmarshalText([]byte(name)); err != nil {
			return q, usage("--state: %s", reason(err))
		}
		q.States = append(q.States, state)
	}
	labels, err := parseLabels(s.labels)
	q.Labels = labels
	return q, err
}

func parseLabels(list []string) (map[string]string, error) {
	labels := map[string]string{}
	for _, l := range list {
		key, value, ok := strings.Cut(l, "=")
		if !ok || key == "" {
			return nil, usage("--label %q: write it KEY=VALUE", l)
		}
		labels[key] = value
	}
	return labels, nil
}

func newList() *cobra.Command {
	var s selection
	limit := 50
	c := &cobra.Command{
		Use:   "list",
		Short: "List runs, newest first, with what each waits for",
		Example: `  bide list --state waiting --workflow research
  bide list --db bide.db --label customer=7 -o jsonl | jq -r .id`,
		Args: arguments(cobra.NoArgs, "bide list [flags]"),
	}
	t, f := targetFlags(c), formatFlag(c)
	s.flags(c.Flags())
	c.Flags().IntVar(&limit, "limit", limit, "at most so many; 0 is all")
	c.RunE = func(c *cobra.Command, _ []string) error {
		q, err := s.query()
		if err != nil {
			return err
		}
		if limit < 0 {
			return usage("--limit %d: is negative; 0 is all", limit)
		}
		store, err := t.read(c.Context())
		if err != nil {
			return err
		}
		defer store.Close()
		runs, more, err := page(c.Context(), store, q, limit)
		if err != nil {
			return err
		}
		show := newScreen(c.ErrOrStderr())
		switch {
		case *f != table:
		case len(runs) == 0 && len(q.States)+len(q.Labels)+len(q.Workflow)+len(q.Queue) == 0:
			show.say("No runs yet; bide start WORKFLOW begins one.")
		case len(runs) == 0:
			show.say("No runs match.")
		}
		now := time.Now()
		err = printAll(c.OutOrStdout(), *f, runs, "ID\tWORKFLOW\tSTATE\tAGE\tDONE\tWHAT", func(r bide.Run) string {
			return cells(r.ID, r.Workflow, r.State.String(), short(now.Sub(r.CreatedAt)), percentOf(&r), cutTo(summary(&r, now), 100))
		})
		if more && *f == table {
			show.say("There are more; --limit 0 shows all.")
		}
		return err
	}
	return c
}

const pageSize = 500

// page reads the newest runs, at most limit (0: all), and says if there are more.
func page(ctx context.Context, store bide.Store, q bide.Query, limit int) (runs []bide.Run, more bool, err error) {
	for {
		q.Limit = pageSize
		if limit > 0 {
			q.Limit = min(pageSize, limit+1-len(runs))
		}
		list, err := store.Runs(ctx, q)
		if err != nil {
			return nil, false, err
		}
		runs = append(runs, list...)
		if limit > 0 && len(runs) > limit {
			return runs[:limit], true, nil
		}
		if len(list) < q.Limit {
			return runs, false, nil
		}
		q.Before = list[len(list)-1].ID
	}
}

func percentOf(r *bide.Run) string {
	if r.Progress == nil {
		return ""
	}
	return fmt.Sprintf("%.0f%%", r.Progress.Percent)
}

// summary is the most telling half line about a run: what it waits for, else how
// it ended or what it does.
func summary(r *bide.Run, now time.Time) string {
	var waits []string
	for _, w := range r.Waiting {
		waits = append(waits, w.Describe(now))
	}
	switch {
	case r.State.Ended() && r.Error != nil:
		return r.Error.Message
	case r.State.Ended():
		return "took " + short(r.EndedAt.Sub(r.CreatedAt))
	case len(waits) > 1:
		return fmt.Sprintf("%s (and %d more)", waits[0], len(waits)-1)
	case len(waits) == 1:
		return waits[0]
	case r.Progress != nil:
		return r.Progress.Message
	}
	return ""
}
