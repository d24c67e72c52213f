package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
)

// format is how data is printed.
type format string

const (
	table format = "table"
	array format = "json"
	lines format = "jsonl"
)

// String implements [pflag.Value].
func (f *format) String() string { return string(*f) }

// Type implements [pflag.Value].
func (f *format) Type() string { return "format" }

// Set implements [pflag.Value].
func (f *format) Set(s string) error {
	switch format(s) {
	case table, array, lines:
		*f = format(s)
		return nil
	}
	return fmt.Errorf("%q is none of table, json, jsonl", s)
}

func formatFlag(c *cobra.Command) *format {
	f := table
	c.Flags().VarP(&f, "output", "o", "`FORMAT`: table, json or jsonl")
	setting(c.Flags(), "output")
	return &f
}

// printAll prints a list: as a table of which row gives a line, as one JSON array,
// or as a line of JSON each.
func printAll[T any](w io.Writer, f format, list []T, header string, row func(T) string) error {
	switch f {
	case array:
		if list == nil {
			list = []T{}
		}
		return printJSON(w, list)
	case lines:
		for i := range list {
			if err := printJSON(w, list[i]); err != nil {
				return err
			}
		}
		return nil
	}
	if len(list) == 0 {
		return nil
	}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, header)
	for i := range list {
		fmt.Fprintln(tw, row(list[i]))
	}
	return tw.Flush()
}

func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// cells joins the cells of a table's row, each made one line that is fit for a
// terminal.
func cells(list ...string) string {
	for i := range list {
		list[i] = plain(list[i])
		if list[i] == "" {
			list[i] = "-"
		}
	}
	return strings.Join(list, "\t")
}
