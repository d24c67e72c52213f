package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/bide-dev/bide"
)

// outcome is a run that was started, and how it ended.
type outcome struct {
	Job     job
	Run     string    // id; "" if no start was acknowledged
	Started time.Time // when it was acknowledged
	State   string
	Error   string
	Story   story
	Unheard bool   // who waits for its result is not told that it has ended
	History string // for people, of one that did not end well
}

// patrons start runs and send them signals, through the servers and the store.
type patrons struct {
	c      *cluster
	client *bide.Client
	tour   *bide.Workflow[job, story]
	http   *http.Client
	seed   uint64

	mu       sync.Mutex
	outcomes map[string]*outcome // by job
	known    map[string]bool     // webhooks that are being delivered to
	work     sync.WaitGroup
	ctx      context.Context
}

func newPatrons(ctx context.Context, seed uint64) *patrons {
	return &patrons{seed: seed, ctx: ctx, outcomes: map[string]*outcome{}, known: map[string]bool{}, tour: newCast("", "").tour,
		http: &http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 16}}}
}

// serve starts so many runs a second until ctx ends.
func (p *patrons) serve(ctx context.Context, rate int) {
	tick := time.NewTicker(time.Second / time.Duration(rate))
	defer tick.Stop()
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
	var names []string
	for name := range verbs {
		names = append(names, name)
	}
	slices.Sort(names)
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
	j := p.newJob(i, rng)
	o := &outcome{Job: j}
	p.mu.Lock()
	p.outcomes[j.ID] = o
	p.mu.Unlock()
	id := p.start(j, rng)
	if id == "" {
		return
	}
	p.mu.Lock()
	o.Run, o.Started = id, time.Now()
	p.mu.Unlock()
	for _, value := range sends(j) {
		if strings.HasSuffix(value, ".hook") { // delivered once its URL is known
			continue
		}
		_ = pause(p.ctx, time.Duration(rng.Int64N(int64(400*time.Millisecond))))
		for again := true; again; again = rng.IntN(4) == 0 {
			p.signal(id, "tally", value, rng)
		}
	}
	p.signal(id, "go", "go", rng)
}

// sends are what a job's verbs wait for: signals, and deliveries to webhooks.
func sends(j job) (values []string) {
	for r, round := range j.Rounds {
		for i, verb := range round {
			switch verb {
			case "signal":
				for n := range tallies {
					values = append(values, fmt.Sprintf("%s/%s/%d", j.ID, place(r, i, verb), n))
				}
			case "hook":
				values = append(values, j.ID+"/"+place(r, i, verb))
			}
		}
	}
	return values
}

// start starts the job's run, again and again until that is acknowledged.
func (p *patrons) start(j job, rng *rand.Rand) (id string) {
	if rng.IntN(3) == 0 {
		p.insist(rng, func(int) error {
			h, err := p.tour.Start(p.ctx, p.client, j, bide.ID("direct-"+j.ID))
			if err == nil {
				id = h.ID()
			}
			return err
		})
		return id
	}
	body, _ := json.Marshal(map[string]any{"workflow": tourName, "input": j})
	p.insist(rng, func(door int) error {
		var run struct {
			ID string `json:"id"`
		}
		err := p.post(p.c.door(door, "v1/runs"), body, "Idempotency-Key", j.ID, &run)
		id = run.ID
		return err
	})
	return id
}

// signal sends a signal, again and again until it is acknowledged.
func (p *patrons) signal(run, name, value string, rng *rand.Rand) {
	body, _ := json.Marshal(value)
	p.insist(rng, func(door int) error {
		return p.post(p.c.door(door, "v1/runs", url.PathEscape(run), "signal", name), body, "Idempotency-Key", value, nil)
	})
}

// deliver delivers to a webhook that the witness was told of.
func (p *patrons) deliver(e event) {
	p.mu.Lock()
	known := p.known[e.URL]
	p.known[e.URL] = true
	p.mu.Unlock()
	if known {
		return
	}
	p.work.Go(func() {
		u, err := url.Parse(e.URL)
		if err != nil {
			panic(err)
		}
		value := e.Job + "/" + e.Place
		body, _ := json.Marshal(value)
		rng := rand.New(rand.NewPCG(p.seed, uint64(len(e.URL))))
		for again := true; again; again = rng.IntN(4) == 0 {
			p.insist(rng, func(door int) error { return p.post(p.c.door(door, u.Path), body, "Webhook-Id", value, nil) })
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

// refusedError is an answer that trying again does not change.
type refusedError struct{ text string }

func (e *refusedError) Error() string { return e.text }

func (p *patrons) post(url string, body []byte, key, value string, answer any) error {
	req, err := http.NewRequestWithContext(p.ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set(key, value)
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

// settle waits until every run has ended, at most so long, and returns the outcomes.
func (p *patrons) settle(ctx context.Context, most time.Duration) []outcome {
	limited, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	done := make(chan struct{})
	go func() { p.work.Wait(); close(done) }()
	select {
	case <-done:
	case <-limited.Done():
	}
	p.mu.Lock()
	var all []outcome
	for _, o := range p.outcomes {
		all = append(all, *o)
	}
	p.mu.Unlock()
	for i := range all {
		p.read(limited, &all[i])
	}
	slices.SortFunc(all, func(a, b outcome) int { return bytes.Compare([]byte(a.Job.ID), []byte(b.Job.ID)) })
	return all
}

// unheard is how long after a run's end its result may come to who waits for it.
const unheard = 5 * time.Second

// await waits for the run's end, by asking for it and by waiting for its result, and
// reports whether only who asks gets to know.
func (p *patrons) await(limited context.Context, run string) bool {
	waiting, cancel := context.WithCancel(limited)
	defer cancel()
	heard := make(chan struct{})
	go func() {
		_, _ = p.tour.Handle(p.client, run).Result(waiting)
		close(heard)
	}()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-heard:
			return false
		case <-tick.C:
		}
		if r, err := p.client.Get(limited, run); err == nil && r.State.Ended() {
			select {
			case <-heard:
				return false
			case <-time.After(unheard):
				return limited.Err() == nil
			}
		}
	}
}

// read waits for the run's end and takes it down.
func (p *patrons) read(limited context.Context, o *outcome) {
	if o.Run == "" {
		return
	}
	o.Unheard = p.await(limited, o.Run)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(limited), 10*time.Second)
	defer cancel()
	run, err := p.client.Get(ctx, o.Run)
	if err != nil {
		o.State, o.Error = "lost", err.Error()
		return
	}
	o.State = run.State.String()
	if run.Error != nil {
		o.Error = run.Error.Err().Error()
	}
	if run.State == bide.Succeeded {
		if err := json.Unmarshal(run.Result, &o.Story); err != nil {
			o.Error = err.Error()
		}
		return
	}
	records, err := p.client.History(ctx, o.Run, 0)
	text, _ := json.Marshal(map[string]any{"run": run, "history": records, "error": fmt.Sprint(err), "rows": p.c.rows(ctx, run.Version)})
	o.History = string(text)
}
