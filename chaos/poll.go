package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/bide-dev/bide"
)

// period is how often polls ask the witness.
const period = 200 * time.Millisecond

func ready(yes bool) bool { return yes }

// looks is a check that asks the witness whether what is there in time is there.
func (p *part) looks(what, url string) func(context.Context) (bool, error) {
	at := p.story.last()
	return func(ctx context.Context) (bool, error) {
		return p.post(ctx, event{What: what, Job: p.job.ID, Place: p.place, Prev: at, URL: url, Call: nonce(), Attempt: bide.AttemptNumber(ctx)})
	}
}

// poll asks the witness until it is ready.
func (p *part) poll(url string, opts ...bide.PollOption) error {
	return p.pollOf(p.looks(look, url), opts...)
}

func (p *part) pollOf(check func(context.Context) (bool, error), opts ...bide.PollOption) error {
	opts = append([]bide.PollOption{bide.Exact{}, bide.Timeout(2 * time.Hour), bide.AttemptTimeout(2 * time.Second)}, opts...)
	if _, err := bide.Poll(p.ctx, p.place, check, ready, opts...); err != nil {
		return err
	}
	return p.step(p.place, soon)
}

// share asks with nine other jobs for the same.
func (p *part) share() error {
	what := sharePrefix + p.job.ID[:len(p.job.ID)-1]
	return p.poll(what, bide.Every(period), bide.Share(what))
}

const (
	sharePrefix = "shared-"
	breakerName = "breaker"
)

// breaker polls what keeps failing at first, behind a breaker that all of its kind share.
func (p *part) breaker() error {
	check := p.looks(look, p.job.ID+"/"+p.place)
	return p.pollOf(func(ctx context.Context) (bool, error) {
		if is, err := check(ctx); is || err != nil {
			return is, err
		}
		return false, errors.New("not yet")
	}, bide.Every(period), bide.Breaker{Name: breakerName, Failures: 3, Cooldown: period, MaxCooldown: 2 * period})
}

// observe polls, and is told in each check what one before has observed.
func (p *part) observe() error {
	check := p.looks(look, p.job.ID+"/"+p.place)
	return p.pollOf(func(ctx context.Context) (bool, error) {
		n := bide.AttemptNumber(ctx)
		if tag := bide.LastObservation(ctx).ETag; tag != "" {
			if last, err := strconv.Atoi(tag); err != nil || last >= n {
				return false, bide.Permanent(fmt.Errorf("check %d is told what check %q has observed", n, tag))
			}
		}
		if err := bide.Observe(ctx, bide.Observation{ETag: strconv.Itoa(n)}); err != nil {
			return false, err
		}
		return check(ctx)
	}, bide.Every(period))
}

// outside is a job that the world outside does: the fetch is told what the submit
// has returned.
func (p *part) outside() error {
	at, url := p.story.last(), p.job.ID+"/"+p.place
	both, err := bide.Job[string, bool, string]{
		Submit: func(ctx context.Context) (string, error) {
			return p.act(ctx, event{Place: p.place + ".submit", Prev: at}, nil)
		},
		Status: func(ctx context.Context, id string) (bool, error) {
			return p.post(ctx, event{What: look, Job: p.job.ID, Place: p.place, Prev: id, URL: url, Call: nonce()})
		},
		Done: ready,
		Fetch: func(ctx context.Context, id string) (string, error) {
			got, err := p.act(ctx, event{Place: p.place + ".fetch", Prev: id}, nil)
			return id + " " + got, err
		},
		Retry: soon,
	}.Run(p.ctx, p.place, bide.Every(period), bide.Timeout(time.Hour), bide.AttemptTimeout(2*time.Second))
	if err != nil {
		return err
	}
	submitted, fetched, _ := strings.Cut(both, " ")
	p.tell(p.place+".submit", submitted)
	p.tell(p.place+".fetch", fetched)
	return nil
}
