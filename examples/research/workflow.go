package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/bide-dev/bide"
)

// Report is what a run returns.
type Report struct {
	Topic string `json:"topic"`
	Text  string `json:"text"`
	File  string `json:"file"`
}

// researcher is what the workflow works with. None of it is kept with the run:
// the next process may bring a service at another URL.
type researcher struct {
	api   *client
	dir   string        // for reports
	every time.Duration // between two looks at a job
}

func (r *researcher) workflow() *bide.Workflow[string, Report] {
	return bide.Define("research", r.research)
}

// research is run again from its beginning each time a process takes it up. What
// is inside a Step or a Poll then is not: its kept result is handed out. So
// whatever asks the world stands inside one, and the rest is plain Go.
//
// No step has a retry policy, since the default is right for all of them: again
// and again, with growing pauses, unless the error says that it is permanent.
// Which errors are, the client knows.
func (r *researcher) research(ctx bide.Context, topic string) (Report, error) {
	var none Report

	bide.Progress(ctx, 0, "asking the model what to search for")
	queries, err := bide.Step(ctx, "queries", func(ctx context.Context) ([]string, error) {
		text, err := r.api.complete(ctx, "queries", "Search queries for: "+topic)
		return strings.Split(text, "\n"), err
	})
	if err != nil {
		return none, err
	}

	bide.Progress(ctx, 10, "searching")
	found, err := r.searchAll(ctx, queries)
	if err != nil {
		return none, err
	}

	bide.Progress(ctx, 25, "submitting the deep-research job")
	submitted, err := bide.Step(ctx, "submit", func(ctx context.Context) (job, error) {
		return r.api.submit(ctx, "submit", topic)
	})
	if err != nil {
		return none, err
	}

	// Minutes, in real life. However many looks it takes, the history gets one
	// record; between them the run may leave the memory altogether.
	done, err := bide.Poll(ctx, "deep-research",
		func(ctx context.Context) (job, error) {
			j, err := r.api.job(ctx, submitted.ID)
			if err == nil {
				bide.Progress(ctx, 30+j.Percent*0.6, "deep research is "+j.State)
			}
			return j, err
		},
		func(j job) bool { return j.State == "completed" },
		bide.Every(r.every), bide.Timeout(time.Hour))
	if err != nil {
		return none, err
	}

	bide.Progress(ctx, 90, "writing")
	notes := strings.Join(append(found, done.Findings), "\n")
	text, err := bide.Step(ctx, "write", func(ctx context.Context) (string, error) {
		return r.api.complete(ctx, "write", "Write a report on "+topic+" from these notes:\n"+notes)
	})
	if err != nil {
		return none, err
	}

	// A crash may repeat this step; writing the same bytes twice does no harm.
	file, err := bide.Step(ctx, "save", func(context.Context) (string, error) {
		file := filepath.Join(r.dir, slug(topic)+".md")
		return file, os.WriteFile(file, []byte(text), 0o644)
	})
	return Report{Topic: topic, Text: text, File: file}, err
}

// searchAll is a part of the workflow: an ordinary function that takes its Context.
func (r *researcher) searchAll(ctx bide.Context, queries []string) ([]string, error) {
	var searches []bide.NamedBranch[string]
	for _, q := range queries {
		searches = append(searches, bide.Branch(q, func(ctx bide.Context) (string, error) {
			return bide.Step(ctx, "search "+q, func(ctx context.Context) (string, error) {
				return r.api.search(ctx, "search "+q, q)
			})
		}))
	}
	return bide.All(ctx, searches...)
}
