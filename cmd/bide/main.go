// Bide waits for things from the command line: it shows, starts and directs the runs
// of a file or a server, serves a file, and polls a URL until it says what is waited
// for, through failures, Ctrl-C and kill -9.
//
//	bide demo
//	bide show demo-research
//	bide poll https://example.org/jobs/7 --until 'body.status == "completed"' --every 10s --timeout 10m
//
// What a command finds out goes to stdout, all else to stderr.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/bide-dev/bide"
)

// The exit codes. Anything else that goes wrong is exitError.
const (
	exitOK          = 0
	exitError       = 1
	exitUsage       = 2   // of the command line, or of what it says
	exitNotFound    = 3   // there is no such run, loop, wait or key
	exitFailed      = 4   // what was waited for has failed
	exitTimedOut    = 5   // it did not come in time
	exitCanceled    = 6   // it was canceled or terminated
	exitUnreachable = 7   // the server cannot be reached
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
	code := exitCode(ctx, err)
	if _, worded := errors.AsType[*saidError](err); code == exitInterrupted && !worded {
		err = said("interrupted", err)
	}
	complain(os.Stderr, inWords(err))
	return code
}

// complain says what went wrong. Most of bide's own errors begin with its name.
func complain(w io.Writer, err error) {
	text := strings.Split("bide: "+strings.TrimPrefix(err.Error(), "bide: "), "\n")
	for i := range text {
		text[i] = plain(text[i])
	}
	fmt.Fprintln(w, strings.Join(text, "\n"))
}

// exitCode is the code that an error ends the program with.
func exitCode(ctx context.Context, err error) int {
	var run *bide.RunError
	var noWait *noWaitError
	switch {
	case isRefused(err):
		return exitError
	case isUsage(err):
		return exitUsage
	case errors.As(err, &run):
		return runCodes[run.State]
	case errors.Is(err, bide.ErrNotFound), errors.As(err, &noWait):
		return exitNotFound
	case isUnreachable(err):
		return exitUnreachable
	case errors.Is(err, context.Canceled) && ctx.Err() != nil:
		return exitInterrupted
	}
	return exitError
}

var runCodes = map[bide.State]int{bide.Failed: exitFailed, bide.TimedOut: exitTimedOut, bide.Canceled: exitCanceled, bide.Terminated: exitCanceled}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "bide",
		Short: "Wait for things, durably",
		Long: `Wait for things, durably. Most commands are about the runs of a store: a file
(--db FILE) or a server (--server URL). Without either they ask the server at
` + defaultServer + `, where bide demo and bide dev are.

What is asked for goes to stdout, all talk to stderr. Settings come from flags, from
BIDE_DB, BIDE_SERVER, BIDE_TOKEN, BIDE_OUTPUT and so on, and from bide.yaml in the
current folder (db: runs.db), in this order.

Exit codes: 0 done, 1 error, 2 wrong command line, 3 not found, 4 the run has failed,
5 it timed out, 6 it was canceled or terminated, 7 the server cannot be reached,
130 interrupted.`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				return unknownCommand(c, args[0])
			}
			return nil
		},
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },

		SuggestionsMinimumDistance: 2,
	}
	root.PersistentFlags().String("config", "", "`FILE` with settings (default "+configFile+", if there is one)")
	root.PersistentPreRunE = func(c *cobra.Command, _ []string) error { return configure(c) }
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		if c == root && c.Flags().NArg() > 0 { // the flag is one of the command that was meant
			return unknownCommand(c, c.Flags().Arg(0))
		}
		return flagError(err)
	})
	group := func(id, title string, commands ...*cobra.Command) {
		root.AddGroup(&cobra.Group{ID: id, Title: title})
		for _, c := range commands {
			c.GroupID = id
			root.AddCommand(c)
		}
	}
	group("serve", "Serve:", newDemo(), newDev(), newServe())
	group("look", "Start runs and look at them:", newStart(), newList(), newShow(), newHistory(), newResult(), newStream(), newWatch())
	group("direct", "Direct runs:", newSignal(), newCancel(), newTerminate(), newPause(), newResume(), newRetry(), newPurge())
	group("wait", "Act on what a run waits for:", newCheck(), newExtend(), newComplete(), newFail())
	group("poll", "Ask URLs, and loops:", newPoll(), newLoop())
	group("keep", "Look after a store:", newDoctor(), newMigrate(), newToken())
	root.AddCommand(newVersion())
	return root
}

// usageError is a command line that makes no sense.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func usage(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// unknownCommand says what may have been meant.
func unknownCommand(c *cobra.Command, name string) error {
	if like := c.SuggestionsFor(name); len(like) > 0 {
		return usage("there is no command %q; did you mean bide %s?", name, strings.Join(like, ", bide "))
	}
	return usage("there is no command %q; bide --help lists them", name)
}

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
