package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/bide-dev/bide"
)

// act does something to one run.
func (t *target) act(c *cobra.Command, id, done string, do func(*bide.Client) error) error {
	store, err := t.write(c.Context(), false)
	if err != nil {
		return err
	}
	defer store.Close()
	if err := do(bide.NewClient(store)); err != nil {
		return t.explain(id, err)
	}
	newScreen(c.ErrOrStderr()).say("%s: %s", id, done)
	return nil
}

// value is the JSON that may stand at a place among the arguments.
func value(c *cobra.Command, args []string, at int) (json.RawMessage, error) {
	if len(args) <= at {
		return json.RawMessage("null"), nil
	}
	return payload(c.InOrStdin(), "JSON", args[at])
}

// waitCommand is a verb that acts on a live wait of a run.
func waitCommand(use, short, done string, args cobra.PositionalArgs, do func(*cobra.Command, *bide.Client, []string) error) *cobra.Command {
	c := &cobra.Command{
		Use:   use,
		Short: short,
		Long:  short + ".\n\nWAIT is the wait's name, or its path, as bide show ID -o json has them.",
		Args:  arguments(args, "bide "+use),
	}
	t := targetFlags(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		return t.act(c, args[0], done, func(client *bide.Client) error {
			run, err := client.Get(c.Context(), args[0])
			if err != nil {
				return err
			}
			if err := waitsFor(&run, args[1]); err != nil {
				return err
			}
			return do(c, client, args)
		})
	}
	return c
}

// waitsFor reports as an error that a run does not wait for what is named. Of one
// that runs it is not known.
func waitsFor(r *bide.Run, name string) error {
	if r.State == bide.Running || r.State.Ended() {
		return nil
	}
	var names []string
	for _, w := range r.Waiting {
		if w.Path != "" && (w.Name == name || w.Path == name) {
			return nil
		}
		if w.Name != "" {
			names = append(names, w.Name)
		} else if w.Path != "" {
			names = append(names, w.Path)
		}
	}
	if len(names) == 0 {
		names = []string{"nothing that can be acted on"}
	}
	return &noWaitError{fmt.Sprintf("run %s waits for no %q; it waits for %s", r.ID, name, strings.Join(names, ", "))}
}

type noWaitError struct{ text string }

func (e *noWaitError) Error() string { return e.text }

func newCheck() *cobra.Command {
	return waitCommand("check ID WAIT", "Make a wait look now: a poll checks, a step in back-off tries again", "looks now", cobra.ExactArgs(2),
		func(c *cobra.Command, client *bide.Client, args []string) error {
			return client.Check(c.Context(), args[0], args[1])
		})
}

func newExtend() *cobra.Command {
	return waitCommand("extend ID WAIT DURATION", "Move the deadline of a wait; a negative duration brings it nearer", "extended", cobra.ExactArgs(3),
		func(c *cobra.Command, client *bide.Client, args []string) error {
			d, err := time.ParseDuration(args[2])
			if err != nil {
				return usage("DURATION %q: write 500ms, 10s, 5m or 1h30m; a negative one comes after --", args[2])
			}
			return client.Extend(c.Context(), args[0], args[1], d)
		})
}

func newComplete() *cobra.Command {
	return waitCommand("complete ID WAIT [JSON]", "End a wait with a value, in the place of the world", "completed", cobra.RangeArgs(2, 3),
		func(c *cobra.Command, client *bide.Client, args []string) error {
			data, err := value(c, args, 2)
			if err != nil {
				return err
			}
			return client.Complete(c.Context(), args[0], args[1], data)
		})
}

func newFail() *cobra.Command {
	return waitCommand("fail ID WAIT REASON", "End a wait with an error that says the reason", "failed", cobra.ExactArgs(3),
		func(c *cobra.Command, client *bide.Client, args []string) error {
			return client.Fail(c.Context(), args[0], args[1], args[2])
		})
}

// eachRun is a verb that does the same to several runs: what fails for one does
// not keep it from the others. It returns what to say of the run.
func eachRun(use, short string, do func(*cobra.Command, bide.Store, string) (string, error)) *cobra.Command {
	c := &cobra.Command{
		Use:   use + " ID...",
		Short: short,
		Args:  arguments(cobra.MinimumNArgs(1), "bide "+use+" ID..."),
	}
	t := targetFlags(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		store, err := t.write(c.Context(), false)
		if err != nil {
			return err
		}
		defer store.Close()
		show := newScreen(c.ErrOrStderr())
		code := exitOK
		for _, id := range args {
			done, err := do(c, store, id)
			if isUnreachable(err) || isRefused(err) || c.Context().Err() != nil {
				return err
			}
			if err = t.explain(id, err); err == nil {
				show.say("%s: %s", id, done)
				continue
			}
			if invalid, ok := errors.AsType[*bide.InvalidError](err); ok {
				err = fmt.Errorf("%s: %s", id, invalid.Reason) // it is the state of the run, not of the command line
			}
			complain(c.ErrOrStderr(), err)
			if code == exitOK {
				code = exitCode(c.Context(), err)
			}
		}
		if code != exitOK {
			return &endedError{code}
		}
		return nil
	}
	return c
}
