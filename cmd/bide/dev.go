package main

import (
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/bide-dev/bide/server"
)

func newDev() *cobra.Command {
	t, addr, level := &target{}, "", slog.LevelWarn
	c := &cobra.Command{
		Use:   "dev",
		Short: "Serve a file to this machine, for development",
		Long: `Serve a file to this machine, for development: HTTP API, workers of other programs,
webhooks. It prints its URL, and goes on until Ctrl-C. Nothing else needs to be set
up: the file is made if there is none, and no key is asked for.

All other commands find it by themselves while it is at its default address.`,
		Args: arguments(cobra.NoArgs, "bide dev [flags]"),
		RunE: func(c *cobra.Command, _ []string) error {
			return serve(c, t, server.Config{Addr: addr}, level, "bide dev")
		},
	}
	c.Flags().StringVar(&t.db, "db", "bide.db", "`FILE` that keeps the runs")
	c.Flags().StringVar(&addr, "addr", defaultAddr, "where to listen; port 0 is any free one")
	setting(c.Flags(), "db", "addr")
	logLevelFlag(c, &level)
	return c
}

// serve serves a file or database until Ctrl-C.
func serve(c *cobra.Command, t *target, cfg server.Config, level slog.Level, who string) error {
	ctx, show := c.Context(), newScreen(c.ErrOrStderr())
	cfg.Logger = logTo(show, level)
	var err error
	if cfg.Webhooks, err = webhooks(c); err != nil {
		return err
	}
	store, err := t.write(ctx, true)
	if err != nil {
		return err
	}
	defer store.Close()
	s, err := newServer(t, store, cfg)
	if err != nil {
		return err
	}
	return runServer(ctx, t, s, cfg.Addr, func(url string) error {
		if !isPostgres(t.db) {
			if err := announce(ctx, store, url); err != nil {
				return err
			}
		}
		show.say("%s serves %s; Ctrl-C ends it.", who, shownDB(t.db))
		_, err := fmt.Fprintln(c.OutOrStdout(), url)
		return err
	})
}

// shownDB is a file or database as it can be shown: without a password.
func shownDB(db string) string {
	if isPostgres(db) {
		return place(db)
	}
	return db
}
