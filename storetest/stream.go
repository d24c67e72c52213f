package storetest

import (
	"github.com/bide-dev/bide"
)

func chunk(path string, attempt int, data string) bide.Chunk {
	return bide.Chunk{Path: path, Name: "step " + path, Attempt: attempt, Data: []byte(data), At: now()}
}

func texts(chunks []bide.Chunk) (list []string) {
	for _, c := range chunks {
		list = append(list, string(c.Data))
	}
	return list
}

func (k *kit) chunks(id string, after int64, limit int) []bide.Chunk {
	k.Helper()
	chunks, err := k.s.Chunks(k.ctx(), id, after, limit)
	k.ok(err)
	for i := 1; i < len(chunks); i++ {
		if chunks[i].Seq <= chunks[i-1].Seq {
			k.Errorf("chunk %d has Seq %d after %d; they must ascend", i, chunks[i].Seq, chunks[i-1].Seq)
		}
	}
	return chunks
}

var streamCases = []testCase{
	{name: "stream/kept-whole", protects: "what a step streams is read back as it was written, byte for byte, in order, and from anywhere on",
		run: func(k *kit) {
			c := k.begin("a")
			all := []bide.Chunk{chunk("1", 1, "Once <upon>\x00\xff "), chunk("1", 1, "a time"), chunk("2", 3, "")}
			k.commit(c, bide.Batch{Chunks: all[:1]})
			k.commit(c, bide.Batch{Chunks: all[1:], Records: []bide.Record{step("1", "story")}})
			got := k.chunks("a", 0, 0)
			equal(k, "chunks", len(got), 3)
			for i, g := range got {
				w := all[i]
				if g.Seq <= 0 || g.Path != w.Path || g.Name != w.Name || g.Attempt != w.Attempt || string(g.Data) != string(w.Data) {
					k.Errorf("chunk %d: got %+v, want %+v", i, g, w)
				}
				sameTime(k, "time", g.At, w.At)
			}
			equal(k, "after the first", texts(k.chunks("a", got[0].Seq, 0)), []string{"a time", ""})
			equal(k, "one after the first", texts(k.chunks("a", got[0].Seq, 1)), []string{"a time"})
			equal(k, "after the last", len(k.chunks("a", got[2].Seq, 0)), 0)
			equal(k, "history", paths(k.history("a")), []string{"1"})
		}},
	{name: "stream/of-its-run", protects: "a run has its own chunks only, and an unknown one is said to be unknown",
		run: func(k *kit) {
			a, b := k.begin("a"), k.begin("b")
			k.commit(a, bide.Batch{Chunks: []bide.Chunk{chunk("1", 1, "of a")}})
			k.commit(b, bide.Batch{Chunks: []bide.Chunk{chunk("1", 1, "of b")}})
			equal(k, "chunks of a", texts(k.chunks("a", 0, 0)), []string{"of a"})
			_, err := k.s.Chunks(k.ctx(), "none", 0, 0)
			k.is(err, bide.ErrNotFound)
		}},
	{name: "stream/fenced", protects: "a worker that has lost the run cannot add to its stream",
		run: func(k *kit) {
			c := k.begin("a")
			k.commit(c, bide.Batch{Chunks: []bide.Chunk{chunk("1", 1, "kept")}, Next: bide.Parked{}})
			k.is(k.s.Commit(k.ctx(), c.Lease, bide.Batch{Chunks: []bide.Chunk{chunk("1", 1, "late")}}), bide.ErrLeaseLost)
			equal(k, "chunks", texts(k.chunks("a", 0, 0)), []string{"kept"})
		}},
	{name: "stream/stays", protects: "the stream stays with the run after its end, and ends with it when it begins anew",
		run: func(k *kit) {
			k.commit(k.begin("a"), bide.Batch{Chunks: []bide.Chunk{chunk("1", 1, "x")}, Next: bide.Done{Result: []byte(`1`)}})
			equal(k, "of an ended run", texts(k.chunks("a", 0, 0)), []string{"x"})
			k.commit(k.begin("b"), bide.Batch{Chunks: []bide.Chunk{chunk("1", 1, "x")}, Next: bide.Continued{Input: []byte(`2`)}})
			equal(k, "of a run begun anew", len(k.chunks("b", 0, 0)), 0)
		}},
	{name: "stream/wakes", protects: "who watches a run hears of each chunk, so that tokens are read as they come",
		run: func(k *kit) {
			w := k.waker()
			c := k.begin("a")
			ch, stop := w.Wake("a", false)
			defer stop()
			drain(ch)
			k.commit(c, bide.Batch{Chunks: []bide.Chunk{chunk("1", 1, "x")}})
			k.woken(ch, "a", "a chunk")
		}},
}
