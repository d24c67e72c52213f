package main

import (
	"github.com/spf13/cobra"

	"github.com/bide-dev/bide"
)

func newStream() *cobra.Command {
	goOn := false
	c := &cobra.Command{
		Use:   "stream ID",
		Short: "Print what the steps of a run have streamed, as it came",
		Long: `Print what the steps of a run have streamed, such as a model's words, byte for byte.
When a step is tried again it streams from its beginning; stderr says so. With -o
jsonl each piece is an object: seq, path, name, attempt, at, data (base64).`,
		Args: arguments(cobra.ExactArgs(1), "bide stream ID"),
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
		if *f == array {
			chunks, err := store.Chunks(ctx, id, 0, 0)
			if err != nil {
				return t.explain(id, err)
			}
			return printAll(out, array, chunks, "", nil)
		}
		show := newScreen(c.ErrOrStderr())
		attempts := map[string]int{}
		printChunk := func(chunk *bide.Chunk) error {
			if *f == lines {
				return printJSON(out, chunk)
			}
			tellSegment(show, attempts, chunk)
			_, err := out.Write(chunk.Data)
			return err
		}
		if goOn {
			for chunk, err := range bide.NewClient(store).Stream(ctx, id, 0) {
				if err == nil {
					err = printChunk(&chunk)
				}
				if err != nil {
					return t.explainFollow(ctx, c, id, err)
				}
			}
			return nil
		}
		chunks, err := store.Chunks(ctx, id, 0, 0)
		for i := 0; err == nil && i < len(chunks); i++ {
			err = printChunk(&chunks[i])
		}
		return t.explain(id, err)
	}
	return c
}

// tellSegment says when a step begins to stream anew: what it streamed before is
// void.
func tellSegment(show *screen, attempts map[string]int, c *bide.Chunk) {
	if before := attempts[c.Path]; before > 0 && before != c.Attempt {
		show.say("")
		show.say("Step %s streams anew, try %d.", c.Name, c.Attempt)
	}
	attempts[c.Path] = c.Attempt
}
