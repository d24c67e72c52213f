package main

import (
	"errors"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/bide-dev/bide"
)

func newLoopList() *cobra.Command {
	c := &cobra.Command{
		Use:   "list",
		Short: "List the loops, with when each runs next",
		Args:  arguments(cobra.NoArgs, "bide loop list"),
	}
	t, f := targetFlags(c), formatFlag(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		store, err := t.read(c.Context())
		if err != nil {
			return err
		}
		defer store.Close()
		loops, err := bide.NewClient(store).Loops(c.Context())
		if err != nil {
			return err
		}
		if len(loops) == 0 && *f == table {
			newScreen(c.ErrOrStderr()).say("No loops; they are there once a worker has them registered.")
		}
		now := time.Now()
		return printAll(c.OutOrStdout(), *f, loops, "LOOP\tSTATE\tINTERVAL\tNEXT\tRUNS\tLAST ERROR", func(s bide.LoopState) string {
			return cells(s.Name, standingOf(&s), interval(&s), upcoming(&s, now), fmt.Sprint(s.Iterations), cutTo(lastError(&s), 80))
		})
	}
	return c
}

// standingOf is the word for where a loop stands, of one that no worker has any more
// too.
func standingOf(s *bide.LoopState) string {
	if s.Stopped {
		return "stopped"
	}
	return loopWord(s)
}

func upcoming(s *bide.LoopState, now time.Time) string {
	if s.NextAt.IsZero() || s.Stopped {
		return ""
	}
	return short(max(s.NextAt.Sub(now), 0))
}

func newLoopShow() *cobra.Command {
	c := &cobra.Command{
		Use:   "show NAME",
		Short: "Show a loop: its interval, its failures, how the last iterations went",
		Args:  arguments(cobra.ExactArgs(1), "bide loop show NAME"),
	}
	t, f := targetFlags(c), formatFlag(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		store, err := t.read(c.Context())
		if err != nil {
			return err
		}
		defer store.Close()
		s, err := bide.NewClient(store).Loop(args[0]).State(c.Context())
		if err != nil {
			return t.explainLoop(args[0], err)
		}
		if *f != table {
			return printJSON(c.OutOrStdout(), s)
		}
		return printLoop(c, &s, time.Now())
	}
	return c
}

func printLoop(c *cobra.Command, s *bide.LoopState, now time.Time) error {
	tw := tabwriter.NewWriter(c.OutOrStdout(), 0, 0, 2, ' ', 0)
	row := func(name, value string) {
		if value != "" {
			fmt.Fprintf(tw, "%s\t%s\n", name, plain(value))
		}
	}
	ago := func(t time.Time) string {
		if t.IsZero() {
			return ""
		}
		return fmt.Sprintf("%s, %s ago", t.Local().Format(time.DateTime), short(now.Sub(t)))
	}
	row("loop", s.Name)
	row("state", standingOf(s))
	row("next in", upcoming(s, now))
	row("interval", interval(s))
	if s.Interval != s.Effective && s.Interval > 0 {
		row("as defined", short(s.Interval))
	}
	row("iterations", fmt.Sprint(s.Iterations))
	row("failures", fmt.Sprintf("%d in a row", s.Failures))
	row("last", ago(s.LastAt))
	row("last success", ago(s.LastSuccessAt))
	row("last error", lastError(s))
	if s.Breaker != nil {
		row("breaker", s.Breaker.State(now).String())
	}
	row("outcomes", s.Outcomes)
	if err := tw.Flush(); err != nil {
		return err
	}
	if s.Outcomes != "" {
		newScreen(c.ErrOrStderr()).say("Outcomes, newest last: s succeeded, c changed, u unchanged, f failed, i interrupted, - skipped.")
	}
	return nil
}

func (t *target) explainLoop(name string, err error) error {
	if errors.Is(err, bide.ErrNotFound) {
		return said(fmt.Sprintf("no loop %q; %s shows what there is", name, t.command("loop", "list")), err)
	}
	if invalid, ok := errors.AsType[*bide.InvalidError](err); ok && !isRefused(err) {
		return fmt.Errorf("loop %s %s", name, invalid.Reason)
	}
	return err
}

// loopCommand is a verb that directs one loop; it returns what to say of it.
func loopCommand(use, short string, do func(*cobra.Command, *bide.LoopHandle) (string, error)) *cobra.Command {
	c := &cobra.Command{
		Use:   use + " NAME",
		Short: short,
		Args:  arguments(cobra.ExactArgs(1), "bide loop "+use+" NAME"),
	}
	t := targetFlags(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		store, err := t.write(c.Context(), false)
		if err != nil {
			return err
		}
		defer store.Close()
		done, err := do(c, bide.NewClient(store).Loop(args[0]))
		if err != nil {
			return t.explainLoop(args[0], err)
		}
		newScreen(c.ErrOrStderr()).say("%s: %s", args[0], done)
		return nil
	}
	return c
}

func newLoopTrigger() *cobra.Command {
	force := false
	c := loopCommand("trigger", "Run a loop now", func(c *cobra.Command, loop *bide.LoopHandle) (string, error) {
		t, err := loop.Trigger(c.Context(), bide.Force(force))
		done := fmt.Sprintf("iteration %d will be of now", t.Iteration)
		if t.Coalesced {
			done += "; it follows the one in flight"
		}
		return done, err
	})
	c.Flags().BoolVar(&force, "force", false, "run one iteration even if the loop is paused")
	return c
}

func newLoopPause() *cobra.Command {
	abort := false
	c := loopCommand("pause", "Hold a loop back", func(c *cobra.Command, loop *bide.LoopHandle) (string, error) {
		return "paused", loop.Pause(c.Context(), bide.Abort(abort))
	})
	c.Flags().BoolVar(&abort, "abort", false, "cancel the iteration in flight, too")
	return c
}

func newLoopResume() *cobra.Command {
	return loopCommand("resume", "Let a paused loop go on", func(c *cobra.Command, loop *bide.LoopHandle) (string, error) {
		return "goes on", loop.Resume(c.Context())
	})
}

func newLoopReset() *cobra.Command {
	return loopCommand("reset-backoff", "Forget the failures of a loop: its interval is the plain one again", func(c *cobra.Command, loop *bide.LoopHandle) (string, error) {
		if _, err := loop.State(c.Context()); err != nil {
			return "", err
		}
		return "its failures are forgotten", loop.ResetBackoff(c.Context())
	})
}
