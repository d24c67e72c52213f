package main

import (
	"github.com/spf13/cobra"

	"github.com/bide-dev/bide"
)

func newSignal() *cobra.Command {
	key := ""
	c := &cobra.Command{
		Use:   "signal ID NAME [JSON]",
		Short: "Send a signal to a run, which keeps it until it is received",
		Example: `  bide signal order-7 approval '{"ok":true}'
  bide signal order-7 paid @receipt.json --key receipt-12`,
		Args: arguments(cobra.RangeArgs(2, 3), "bide signal ID NAME [JSON]"),
	}
	t := targetFlags(c)
	c.Flags().StringVar(&key, "key", "", "a second signal with the same key counts for nothing")
	c.RunE = func(c *cobra.Command, args []string) error {
		data, err := value(c, args, 2)
		if err != nil {
			return err
		}
		var options []bide.SignalOption
		if key != "" {
			options = append(options, bide.Key(key))
		}
		return t.act(c, args[0], "signaled", func(client *bide.Client) error {
			return client.Signal(c.Context(), args[0], args[1], data, options...)
		})
	}
	return c
}
