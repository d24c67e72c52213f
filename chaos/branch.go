package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/bide-dev/bide"
)

// lane is a branch with a step in it, which others go side by side with.
func (p *part) lane(name string) bide.NamedBranch[string] {
	at := p.story.last()
	return bide.Branch(name, func(ctx bide.Context) (string, error) {
		if err := bide.Sleep(ctx, p.within(time.Millisecond, 300*time.Millisecond)); err != nil {
			return "", err
		}
		return p.call(ctx, event{Place: p.place + "." + name, Lane: name, Prev: at}, nil, soon)
	})
}

func (p *part) all() error {
	got, err := bide.All(p.ctx, p.lane("a"), p.lane("b"))
	if err != nil {
		return err
	}
	p.tell(p.place+".a", got[0])
	p.tell(p.place+".b", got[1])
	return nil
}

// both has one branch go beside the workflow itself.
func (p *part) both() error {
	at := p.story.last()
	other := bide.Go(p.ctx, "a", func(ctx bide.Context) (string, error) {
		return p.call(ctx, event{Place: p.place + ".a", Lane: "a", Prev: at}, nil, soon)
	})
	mine, err := p.call(p.ctx, event{Place: p.place + ".b", Lane: "b", Prev: at}, nil, soon)
	if err != nil {
		return err
	}
	got, err := other.Get(p.ctx)
	p.tell(p.place+".a", got)
	p.tell(p.place+".b", mine)
	return err
}

func (p *part) race() error {
	at := p.story.last()
	winner, got, err := bide.Race(p.ctx,
		bide.Branch("slow", func(ctx bide.Context) (string, error) { return "", bide.Sleep(ctx, time.Hour) }),
		bide.Branch("fast", func(ctx bide.Context) (string, error) {
			if err := bide.Sleep(ctx, p.within(time.Millisecond, 300*time.Millisecond)); err != nil {
				return "", err
			}
			return p.call(ctx, event{Place: p.place, Prev: at}, nil, soon)
		}))
	if err == nil && winner != "fast" {
		err = fmt.Errorf("an hour was shorter: %s", winner)
	}
	p.tell(p.place, got)
	return err
}

// saga books, cannot pay, and takes the booking back.
func (p *part) saga() error {
	broke := errors.New("broke")
	_, err := bide.Saga(p.ctx, func(ctx bide.Context, undo *bide.Undo) (string, error) {
		if err := p.step(p.place+".book", soon); err != nil {
			return "", err
		}
		at := p.story.last()
		undo.Add(p.place+".drop", func(ctx context.Context) (err error) {
			_, err = p.act(ctx, event{Place: p.place + ".drop", Prev: at}, nil)
			return err
		}, soon)
		return p.call(ctx, event{Place: p.place + ".pay", Prev: at}, func(context.Context, event) error { return bide.Permanent(broke) }, soon)
	})
	if err == nil || !strings.Contains(err.Error(), broke.Error()) {
		return fmt.Errorf("a saga that cannot be paid: %w", err)
	}
	p.tell(p.place+".drop", "") // a compensation has no result to tell
	return nil
}
