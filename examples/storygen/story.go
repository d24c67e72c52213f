package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/bide-dev/bide"
)

// Request asks for a story of one of the projects.
type Request struct {
	Project  string `json:"project"`
	Chapters int    `json:"chapters"`
}

// Story is what a run returns.
type Story struct {
	Title string `json:"title"`
	Text  string `json:"text"`
}

// newWorkflow is the story's workflow. Validate refuses, in the request that asks
// for it, what could only fail later.
func newWorkflow(p projects, m *model) *bide.Workflow[Request, Story] {
	return bide.Define("story", func(ctx bide.Context, r Request) (Story, error) {
		var story Story
		title, err := bide.Step(ctx, "title", func(ctx context.Context) (string, error) {
			return m.write(ctx, "a title for "+p[r.Project].Outline, 4, nil)
		})
		if err != nil {
			return story, err
		}
		story.Title = strings.TrimSuffix(title, ".")
		for i := range r.Chapters {
			name := fmt.Sprintf("chapter %d", i+1)
			bide.Progress(ctx, float64(100*i/r.Chapters), "Writing "+name+" of "+fmt.Sprint(r.Chapters),
				bide.AtStep{Index: i + 1, Count: r.Chapters, Name: name})
			text, err := bide.Step(ctx, name, func(ctx context.Context) (string, error) {
				return m.write(ctx, name+" of "+story.Title, 60, bide.Stream(ctx))
			}, bide.RetryPolicy{MaximumAttempts: 4})
			if err != nil {
				return story, err
			}
			story.Text += text + "\n\n"
		}
		bide.Progress(ctx, 100, "Written")
		return story, nil
	}, bide.Validate(p.check))
}

// project is what a story is made of. Its outline has to be there first.
type project struct{ Outline string }

type projects map[string]project

// check is the story's prerequisite: its error tells a person what to do.
func (p projects) check(r Request) error {
	known, ok := p[r.Project]
	switch {
	case !ok:
		return &bide.InvalidError{Field: "project", Reason: fmt.Sprintf("%q is not known; there are owl and fox", r.Project)}
	case known.Outline == "":
		return &bide.InvalidError{Field: "project", Reason: fmt.Sprintf("%q has no outline yet; write one before you ask for its story", r.Project)}
	case r.Chapters < 1 || r.Chapters > 20:
		return &bide.InvalidError{Field: "chapters", Reason: fmt.Sprintf("is %d; it must be from 1 to 20", r.Chapters)}
	}
	return nil
}
