package main

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

func newVersion() *cobra.Command {
	c := &cobra.Command{
		Use:   "version",
		Short: "Print what this program was built from",
		Args:  arguments(cobra.NoArgs, "bide version"),
	}
	f := formatFlag(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		b := readBuild()
		if *f != table {
			return printJSON(c.OutOrStdout(), b)
		}
		_, err := fmt.Fprintln(c.OutOrStdout(), b)
		return err
	}
	return c
}

// build is what the go command has stamped the program with.
type build struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func readBuild() build {
	b := build{Version: "(devel)", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	b.Version = cmp.Or(info.Main.Version, b.Version)
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			b.Revision = s.Value
		}
	}
	return b
}

func (b build) String() string {
	revision := ""
	if b.Revision != "" {
		revision = ", revision " + b.Revision
	}
	return fmt.Sprintf("bide %s%s, %s %s", b.Version, revision, b.Go, b.Platform)
}
