package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/remote"
)

// patrons start runs, and do to them what their verbs ask for, through the servers
// and the store.
type patrons struct {
	c      *cluster
	client *bide.Client   // at the database
	away   []*bide.Client // at the servers
	tour   *bide.Workflow[job, story]
	http   *http.Client
	seed   uint64

	mu       sync.Mutex
	outcomes map[string]*outcome // by job
	answered map[string]bool     // what was asked for
	work     sync.WaitGroup
	ctx      context.Context
}

func newPatrons(ctx context.Context, seed uint64) *patrons {
	return &patrons{seed: seed, ctx: ctx, outcomes: map[string]*outcome{}, answered: map[string]bool{}, tour: newCast("", "", nil).tour,
		http: &http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 16}}}
}

// join gives them their ways into the cluster.
func (p *patrons) join(c *cluster) error {
	p.c, p.client = c, bide.NewClient(c.store, p.tour)
	for i := range c.doors {
		store, err := remote.Dial(c.door(i))
		if err != nil {
			return err
		}
		p.away = append(p.away, bide.NewClient(store, p.tour))
	}
	return nil
}

// any is one of the ways in.
func (p *patrons) any(rng *rand.Rand) *bide.Client {
	return append([]*bide.Client{p.client}, p.away...)[rng.IntN(1+len(p.away))]
}

// dice are always the same for one purpose.
func (p *patrons) dice(what string) *rand.Rand {
	h := fnv.New64a()
	_, _ = io.WriteString(h, what) // never fails
	return rand.New(rand.NewPCG(p.seed, h.Sum64()))
}

// serve starts so many runs a second until ctx ends.
func (p *patrons) serve(ctx context.Context, rate int) {
	tick := time.NewTicker(time.Second / time.Duration(rate))
	defer tick.Stop()
	p.work.Go(func() { p.tend(ctx) })
	for i := 0; ; i++ {
		select {
		case <-tick.C:
			p.work.Go(func() { p.patron(i) })
		case <-ctx.Done():
			return
		}
	}
}

// newJob is the i-th job of the seed.
func (p *patrons) newJob(i int, rng *rand.Rand) job {
	names := slices.Sorted(maps.Keys(verbs))
	j := job{ID: fmt.Sprintf("job-%06d", i)}
	for range 1 + rng.IntN(5)/3 { // two rounds of two in five
		var round []string
		for range 3 + rng.IntN(4) {
			round = append(round, names[rng.IntN(len(names))])
		}
		j.Rounds = append(j.Rounds, round)
	}
	return j
}

func (p *patrons) patron(i int) {
	rng := rand.New(rand.NewPCG(p.seed, uint64(i)<<8))
	o := &outcome{Job: p.newJob(i, rng), started: make(chan struct{}), followed: make(chan struct{})}
	p.mu.Lock()
	p.outcomes[o.Job.ID] = o
	p.mu.Unlock()
	id := p.start(o, rng)
	p.mu.Lock()
	o.Run, o.Started = id, time.Now()
	p.mu.Unlock()
	close(o.started)
	if id == "" {
		return
	}
	_ = pause(p.ctx, time.Until(o.After)) // a signal is due at once, whatever the run is
	if streams(o.Job) {
		p.work.Go(func() { p.follow(o, p.dice(o.Job.ID)) })
	}
	for _, value := range tallies(o.Job) {
		_ = pause(p.ctx, time.Duration(rng.Int64N(int64(400*time.Millisecond))))
		for again := true; again; again = rng.IntN(4) == 0 {
			p.signal(o, "tally", value, rng)
		}
	}
	if !o.Ordered {
		p.signal(o, "go", "go", rng)
	}
}

// start starts the job's run, again and again until that is acknowledged.
func (p *patrons) start(o *outcome, rng *rand.Rand) (id string) {
	switch rng.IntN(6) {
	case 0:
		return p.order(o, rng)
	case 1, 2:
		c, delay := p.any(rng), time.Duration(rng.IntN(500))*time.Millisecond
		o.After = time.Now().Add(delay)
		p.surely(func() error {
			h, err := p.tour.Start(p.ctx, c, o.Job, bide.ID("direct-"+o.Job.ID), bide.Labels{"way": "direct"}, bide.Delay(delay))
			if err == nil {
				id = h.ID()
			}
			return err
		})
		return id
	}
	body, _ := json.Marshal(map[string]any{"workflow": tourName, "input": o.Job})
	p.insist(rng, func(door int) error {
		var run struct {
			ID string `json:"id"`
		}
		err := p.send(p.c.door(door, "v1/runs"), body, http.Header{"Idempotency-Key": {o.Job.ID}}, &run)
		id = run.ID
		return err
	})
	return id
}

// signal sends a signal, again and again until it is acknowledged. A run that fails,
// to be retried, takes none meanwhile.
func (p *patrons) signal(o *outcome, name, value string, rng *rand.Rand) {
	body, _ := json.Marshal(value)
	way := p.dice(value) // one for each value: a key counts among those of its way only
	direct, c := way.IntN(3) == 0, p.any(way)
	p.insist(rng, func(door int) (err error) {
		if direct {
			err = c.Signal(p.ctx, o.Run, name, value, bide.Key(value))
		} else {
			err = p.send(p.c.door(door, "v1/runs", url.PathEscape(o.Run), "signal", url.PathEscape(name)), body, http.Header{"Idempotency-Key": {value}}, nil)
		}
		_, refused := errors.AsType[*refusedError](err)
		if refused && !o.Job.uses("retry") {
			return bide.ErrRunEnded // it may have had it before, as it may have what it went on with
		}
		if refused || errors.Is(err, bide.ErrRunEnded) && o.Job.uses("retry") {
			if run, gerr := c.Get(p.ctx, o.Run); gerr == nil && p.over(o, run.State) {
				return bide.ErrRunEnded // for good: the answer to an earlier try was lost
			}
			return errors.New(err.Error())
		}
		return err
	})
}

// answer does what a step asks for, once.
func (p *patrons) answer(e event) {
	root, _, _ := strings.Cut(e.Job, "/")
	p.mu.Lock()
	o, key := p.outcomes[root], e.Job+" "+e.Ask
	known := p.answered[key]
	p.answered[key] = true
	p.mu.Unlock()
	if known || o == nil {
		return
	}
	p.work.Go(func() {
		select {
		case <-o.started:
			verbs[verbOf(e.Ask)].answer(p, o, e)
		case <-p.ctx.Done():
		}
	})
}

// insist tries until fn succeeds, or refuses for good, each time at another door.
func (p *patrons) insist(rng *rand.Rand, fn func(door int) error) {
	door := rng.IntN(2)
	for n := 0; p.ctx.Err() == nil; n++ {
		err := fn(door + n)
		var refused *refusedError
		if err == nil || errors.As(err, &refused) || errors.Is(err, bide.ErrRunEnded) {
			if refused != nil {
				p.c.say("refused: %v", err)
			}
			return
		}
		if n > 0 && n%40 == 0 {
			p.c.say("a patron has tried %d times: %v", n, err)
		}
		_ = pause(p.ctx, min(50*time.Millisecond<<min(n, 4), 500*time.Millisecond))
	}
}

// surely does it until it is known to have been done.
func (p *patrons) surely(do func() error) {
	for p.ctx.Err() == nil && do() != nil {
		_ = pause(p.ctx, 100*time.Millisecond)
	}
}

// refusedError is an answer that trying again does not change.
type refusedError struct{ text string }

func (e *refusedError) Error() string { return e.text }

// send posts JSON.
func (p *patrons) send(url string, body []byte, header http.Header, answer any) error {
	req, err := http.NewRequestWithContext(p.ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	for name, values := range header {
		req.Header[http.CanonicalHeaderKey(name)] = values
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := p.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return err
	case resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode >= 500:
		return fmt.Errorf("%s: %s", resp.Status, data)
	case resp.StatusCode >= 300:
		return &refusedError{fmt.Sprintf("%s: %s %s", url, resp.Status, data)}
	case answer != nil:
		return json.Unmarshal(data, answer)
	}
	return nil
}
