package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/bide-dev/bide/postgres"
)

func newMigrate() *cobra.Command {
	t, show := &target{}, false
	c := &cobra.Command{
		Use:   "migrate",
		Short: "Bring the tables of a file or database up to date",
		Long: `Bring the tables of a file or database up to date. Every program that opens it for
writing does so too; this is for those who would rather do it at a time of their own.
With --print it prints the SQL for Postgres, and changes nothing.`,
		Args: arguments(cobra.NoArgs, "bide migrate --db FILE|postgres://..."),
		RunE: func(c *cobra.Command, _ []string) error {
			if show {
				_, err := fmt.Fprint(c.OutOrStdout(), postgres.Migrations())
				return err
			}
			if t.db == "" {
				return usage("--db is missing; name a file or postgres://...")
			}
			store, err := t.write(c.Context(), true)
			if err != nil {
				return err
			}
			if err := store.Close(); err != nil {
				return err
			}
			newScreen(c.ErrOrStderr()).say("%s is up to date.", shownDB(t.db))
			return nil
		},
	}
	c.Flags().StringVar(&t.db, "db", "", "`FILE` that keeps the runs, or postgres://...")
	c.Flags().BoolVar(&show, "print", false, "print the SQL for Postgres")
	setting(c.Flags(), "db")
	return c
}
