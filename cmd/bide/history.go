package main

import (
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/bide-dev/bide"
)

func newHistory() *cobra.Command {
	goOn := false
	c := &cobra.Command{
		Use:   "history ID",
		Short: "Print what a run has done, a line a step",
		Args:  arguments(cobra.ExactArgs(1), "bide history ID"),
	}
	t, f := targetFlags(c), formatFlag(c)
	c.Flags().BoolVarP(&goOn, "follow", "f", false, "go on until the run has ended")
	c.RunE = func(c *cobra.Command, args []string) error {
		if goOn && *f == array {
			return usage("-o json: what is followed is no array; use -o jsonl")
		}
		ctx, id, out := c.Context(), args[0], c.OutOrStdout()
		store, err := t.read(ctx)
		if err != nil {
			return err
		}
		defer store.Close()
		if !goOn {
			records, err := store.History(ctx, id, 0, 0)
			if err != nil {
				return t.explain(id, err)
			}
			return printAll(out, *f, records, "AT\tPATH\tKIND\tNAME\tTOOK\tTRIES\tOUTCOME", func(r bide.Record) string {
				return cells(recordCells(&r)...)
			})
		}
		last := int64(0)
		return t.explainFollow(ctx, c, id, follow(ctx, store, id, func() error {
			records, err := store.History(ctx, id, last, 0)
			if err != nil {
				return err
			}
			for i := range records {
				last = records[i].Seq
				if *f == lines {
					err = printJSON(out, records[i])
				} else {
					cell := recordCells(&records[i])
					_, err = fmt.Fprintf(out, "%s  %-6s %-8s %-20s %8s %5s  %s\n", cells(cell[0]), cells(cell[1]), cells(cell[2]),
						cells(cell[3]), cells(cell[4]), cells(cell[5]), cells(cell[6]))
				}
				if err != nil {
					return err
				}
			}
			return nil
		}))
	}
	return c
}

// recordCells are a record's cells in the table.
func recordCells(r *bide.Record) []string {
	took, tries := "", ""
	if r.Took > 0 {
		took = short(r.Took)
	}
	if r.Attempt > 0 {
		tries = strconv.Itoa(r.Attempt)
	}
	outcome := string(r.Data)
	if r.Error != nil {
		outcome = "error: " + r.Error.Message
	}
	if r.By != "" {
		outcome += " (" + r.By + "d by hand)"
	}
	return []string{clockOf(r.At), r.Path, r.Kind.String(), r.Name, took, tries, cutTo(outcome, 80)}
}

// clockOf is a time to the millisecond, with its day unless that is today's.
func clockOf(t time.Time) string {
	t = t.Local()
	if t.Format(time.DateOnly) == time.Now().Format(time.DateOnly) {
		return t.Format("15:04:05.000")
	}
	return t.Format("2006-01-02 15:04:05.000")
}
