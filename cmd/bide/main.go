// Bide waits for things from the command line: it polls a URL until it says what
// is waited for, and keeps at it through failures, Ctrl-C and kill -9.
//
//	bide poll https://example.org/jobs/7 --until 'body.status == "completed"' --every 10s --timeout 10m
//
// What a command finds out goes to stdout, all else to stderr.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/bide-dev/bide"
)

// The exit codes. Anything else that goes wrong is exitError.
const (
	exitOK          = 0
	exitError       = 1
	exitUsage       = 2   // of the command line, or of what it says
	exitFailed      = 4   // what was waited for has failed
	exitTimedOut    = 5   // it did not come in time
	exitInterrupted = 130 // Ctrl-C, as shells have it
)

func main() { os.Exit(run(os.Args[1:])) }

func run(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C kills
	defer stop()
	root := newRoot()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	if ended, ok := errors.AsType[*endedError](err); ok { // it has been said
		return ended.code
	}
	fmt.Fprintln(os.Stderr, "bide:", err)
	if isUsage(err) {
		return exitUsage
	}
	return exitError
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:           "bide",
		Short:         "Wait for things, durably",
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.NoArgs,
		RunE:          func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return flagError(err) })
	root.AddCommand(newPoll(), newLoop(), newVersion())
	return root
}

// usageError is a command line that makes no sense.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func usage(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// arguments makes what cobra says of arguments a usage error.
func arguments(check cobra.PositionalArgs, mend string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if err := check(c, args); err != nil {
			return usage("%w; write %s", err, mend)
		}
		return nil
	}
}

func isUsage(err error) bool {
	var u usageError
	var invalid *bide.InvalidError
	var conflict *bide.ConflictError
	return errors.As(err, &u) || errors.As(err, &invalid) || errors.As(err, &conflict)
}

// endedError is the end of a wait that was told in its own words.
type endedError struct{ code int }

func (e *endedError) Error() string { return fmt.Sprintf("exit code %d", e.code) }
