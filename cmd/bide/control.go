package main

import (
	"github.com/spf13/cobra"

	"github.com/bide-dev/bide"
)

func newCancel() *cobra.Command {
	reason := ""
	c := eachRun("cancel", "Ask runs to end; they may clean up", func(c *cobra.Command, s bide.Store, id string) (string, error) {
		run, err := s.Run(c.Context(), id) // to cancel what has ended is no error, and changes nothing
		switch {
		case err != nil:
			return "", err
		case run.State.Ended():
			return "had ended already: " + stateWord(run.State), nil
		}
		return "is asked to end", bide.NewClient(s).Cancel(c.Context(), id, reason)
	})
	c.Flags().StringVar(&reason, "reason", "", "`TEXT` that is kept with it")
	return c
}

func newTerminate() *cobra.Command {
	reason := ""
	c := eachRun("terminate", "End runs at once, without clean-up", func(c *cobra.Command, s bide.Store, id string) (string, error) {
		return "terminated", bide.NewClient(s).Terminate(c.Context(), id, reason)
	})
	c.Flags().StringVar(&reason, "reason", "", "`TEXT` that is kept with it")
	return c
}

func newPause() *cobra.Command {
	return eachRun("pause", "Hold runs back once what is in flight is done", func(c *cobra.Command, s bide.Store, id string) (string, error) {
		return "paused", bide.NewClient(s).Pause(c.Context(), id)
	})
}

func newResume() *cobra.Command {
	return eachRun("resume", "Let paused runs go on", func(c *cobra.Command, s bide.Store, id string) (string, error) {
		return "goes on", bide.NewClient(s).Resume(c.Context(), id)
	})
}

func newRetry() *cobra.Command {
	return eachRun("retry", "Send runs that failed on their way again, from the step that failed", func(c *cobra.Command, s bide.Store, id string) (string, error) {
		return "tries again", bide.NewClient(s).Retry(c.Context(), id)
	})
}

func newPurge() *cobra.Command {
	return eachRun("purge", "Remove runs that have ended, with all that belongs to them", func(c *cobra.Command, s bide.Store, id string) (string, error) {
		admin, ok := s.(bide.Admin)
		if !ok {
			return "", usage("purge: this store removes nothing")
		}
		return "removed", admin.Purge(c.Context(), id)
	})
}
