package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/bide-dev/bide"
)

func newResult() *cobra.Command {
	wait := false
	c := &cobra.Command{
		Use:   "result ID",
		Short: "Print what a run returned, as JSON",
		Long: `Print what a run returned, as JSON. With -o json it is an object that says how the
run ended: id, state, result, error.

Exit codes: 0 it succeeded, 1 it has not ended, 3 there is no such run, 4 it failed,
5 it timed out, 6 it was canceled or terminated, 7 the server cannot be reached.`,
		Args: arguments(cobra.ExactArgs(1), "bide result ID"),
	}
	t, f := targetFlags(c), formatFlag(c)
	c.Flags().BoolVar(&wait, "wait", false, "wait until the run has ended")
	c.RunE = func(c *cobra.Command, args []string) error {
		store, err := t.read(c.Context())
		if err != nil {
			return err
		}
		if wait {
			return await(c, t, store, *f, args[0])
		}
		defer store.Close()
		run, err := store.Run(c.Context(), args[0])
		if err != nil {
			return t.explain(args[0], err)
		}
		if !run.State.Ended() {
			return fmt.Errorf("run %s is %v; %s waits for its end", run.ID, run.State, t.command("result", run.ID, "--wait"))
		}
		return printResult(c, t, *f, &run)
	}
	return c
}

// await waits until a run has ended, shows its progress meanwhile, and prints the
// result. It closes the store.
func await(c *cobra.Command, t *target, store bide.Store, f format, id string) error {
	defer store.Close()
	handle := anyWorkflow("any").Handle(bide.NewClient(store), id)
	_, err := handle.Result(c.Context(), bide.TerminalProgress(c.ErrOrStderr()))
	if _, ended := errors.AsType[*bide.RunError](err); err != nil && !ended {
		if errors.Is(err, context.Canceled) {
			return said(fmt.Sprintf("interrupted; the run goes on, %s waits again", t.command("result", id, "--wait")), err)
		}
		return t.explain(id, err)
	}
	run, err := store.Run(c.Context(), id)
	if err != nil {
		return err
	}
	return printResult(c, t, f, &run)
}

// printResult prints what came of a run that has ended.
func printResult(c *cobra.Command, t *target, f format, r *bide.Run) error {
	if f != table {
		err := printJSON(c.OutOrStdout(), struct {
			ID     string          `json:"id"`
			State  bide.State      `json:"state"`
			Result json.RawMessage `json:"result,omitempty"`
			Error  *bide.Failure   `json:"error,omitempty"`
		}{r.ID, r.State, r.Result, r.Error})
		if err != nil {
			return err
		}
	}
	if r.State != bide.Succeeded {
		err := &bide.RunError{ID: r.ID, State: r.State, Err: r.Error.Err()}
		return said(fmt.Sprintf("%v; %s shows why", err, t.command("history", r.ID)), err)
	}
	if f != table {
		return nil
	}
	result := r.Result
	if len(result) == 0 {
		result = json.RawMessage("null")
	}
	_, err := fmt.Fprintln(c.OutOrStdout(), string(result))
	return err
}
