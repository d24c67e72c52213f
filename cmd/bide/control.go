package main

import (
	"github.com/spf13/cobra"

	"github.com/bide-dev/bide"
)

func newCancel() *cobra.Command {
	reason := ""
	c := eachRun("cancel", "Ask runs to end; they may clean up", "is asked to end", func(c *cobra.Command, s bide.Store, id string) error {
		return bide.NewClient(s).Cancel(c.Context(), id, reason)
	})
	c.Flags().StringVar(&reason, "reason", "", "`TEXT` that is kept with it")
	return c
}

func newTerminate() *cobra.Command {
	reason := ""
	c := eachRun("terminate", "End runs at once, without clean-up", "terminated", func(c *cobra.Command, s bide.Store, id string) error {
		return bide.NewClient(s).Terminate(c.Context(), id, reason)
	})
	c.Flags().StringVar(&reason, "reason", "", "`TEXT` that is kept with it")
	return c
}

func newPause() *cobra.Command {
	return eachRun("pause", "Hold runs back once what is in flight is done", "paused", func(c *cobra.Command, s bide.Store, id string) error {
		return bide.NewClient(s).Pause(c.Context(), id)
	})
}

func newResume() *cobra.Command {
	return eachRun("resume", "Let paused runs go on", "goes on", func(c *cobra.Command, s bide.Store, id string) error {
		return bide.NewClient(s).Resume(c.Context(), id)
	})
}

func newRetry() *cobra.Command {
	return eachRun("retry", "Send runs that failed on their way again, from the step that failed", "tries again", func(c *cobra.Command, s bide.Store, id string) error {
		return bide.NewClient(s).Retry(c.Context(), id)
	})
}

func newPurge() *cobra.Command {
	return eachRun("purge", "Remove runs that have ended, with all that belongs to them", "removed", func(c *cobra.Command, s bide.Store, id string) error {
		admin, ok := s.(bide.Admin)
		if !ok {
			return usage("purge: this store removes nothing")
		}
		return admin.Purge(c.Context(), id)
	})
}
