package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/bide-dev/bide"
)

// job is the input of a tour: a run that uses one verb after another.
type job struct {
	ID     string     `json:"id"`
	Rounds [][]string `json:"rounds"` // verbs; from one round to the next it begins anew
	Round  int        `json:"round,omitempty"`
	Told   story      `json:"told"` // by the rounds before
}

// story is what a run says of itself in the end.
type story struct {
	Calls []call   `json:"calls,omitempty"`
	Got   []string `json:"got,omitempty"` // signals and deliveries
}

// call is the result of a step: which call of its function it was.
type call struct {
	Place string `json:"place"`
	Call  string `json:"call"` // "" where it has none to tell
}

// last is the newest call that the run knows of.
func (s *story) last() string {
	for _, c := range slices.Backward(s.Calls) {
		if c.Call != "" {
			return c.Call
		}
	}
	return ""
}

const (
	tourName = "tour"
	kidName  = "kid"
	loopName = "beat"

	loopEvery = 300 * time.Millisecond
	tallies   = 2 // signals of a verb "signal"
)

// soon is a policy for what fails because the witness cannot be reached.
var soon = bide.RetryPolicy{InitialInterval: 50 * time.Millisecond, MaximumInterval: 500 * time.Millisecond}

// verbs are the parts of a tour.
var verbs = map[string]func(*part) error{
	"plain": func(p *part) error { return p.step(p.place, soon) },
	"flaky": func(p *part) error {
		return p.stepThat(p.place, func(attempt int) error {
			if attempt < 3 {
				return errors.New("not yet")
			}
			return nil
		}, soon)
	},
	"once": func(p *part) error {
		at := p.story.last()
		got, err := bide.Step(p.ctx, p.place, func(ctx context.Context) (string, error) {
			return p.act(ctx, event{Place: p.place, Prev: at}, nil)
		}, bide.RetryPolicy{MaximumAttempts: 1})
		if errors.Is(err, bide.ErrCanceled) {
			return err
		}
		p.tell(p.place, got) // it may have failed, or been interrupted
		return nil
	},
	"nap":    func(p *part) error { return p.sleep(p.within(100*time.Millisecond, 900*time.Millisecond)) },
	"sleep":  func(p *part) error { return p.sleep(p.within(time.Second, 5*time.Second)) },
	"signal": (*part).signal,
	"quiet": func(p *part) error {
		d := p.within(100*time.Millisecond, time.Second)
		due := bide.Now(p.ctx).Add(d)
		if _, err := bide.Receive[string](p.ctx, "never", bide.Timeout(d)); !errors.Is(err, bide.ErrTimeout) {
			return fmt.Errorf("a signal that nobody sends: %w", err)
		}
		return p.stepAt(p.place, due)
	},
	"poll":  func(p *part) error { return p.poll(p.job.ID+"/"+p.place, "") },
	"share": func(p *part) error { return p.poll("shared", "shared-"+p.job.ID[:len(p.job.ID)-1]) },
	"hook":  (*part).hook,
	"child": func(p *part) error {
		got, err := bide.Child(p.ctx, p.cast.kid, job{ID: p.job.ID + "/" + p.place, Told: story{Calls: []call{{"", p.story.last()}}}})
		if err != nil {
			return err
		}
		p.story.Calls = append(p.story.Calls, got.Calls...)
		return nil
	},
	"all":  (*part).all,
	"race": (*part).race,
	"saga": (*part).saga,
	"phase": func(p *part) error {
		at := p.story.last()
		got, err := bide.Phase(p.ctx, "phase", func(ctx bide.Context) (string, error) {
			if err := bide.Sleep(ctx, 50*time.Millisecond); err != nil {
				return "", err
			}
			return p.call(ctx, event{Place: p.place, Prev: at}, nil, soon)
		})
		p.tell(p.place, got)
		return err
	},
	"stream": func(p *part) error {
		at := p.story.last()
		got, err := bide.Step(p.ctx, p.place, func(ctx context.Context) (string, error) {
			out := bide.Stream(ctx)
			for i := range 3 {
				if _, err := fmt.Fprintf(out, "word %d ", i); err != nil {
					return "", err
				}
			}
			return p.act(ctx, event{Place: p.place, Prev: at}, nil)
		}, soon)
		p.tell(p.place, got)
		return err
	},
	"publish": func(p *part) error {
		_ = bide.Progress(p.ctx, 50, p.place)
		if err := bide.Publish(p.ctx, "so-far", len(p.story.Calls)); err != nil {
			return err
		}
		return p.step(p.place, soon)
	},
}

// steps are the places of the calls that a verb leaves in the story.
func steps(job, place, verb string) []string {
	switch verb {
	case "child":
		return []string{job + "/" + place}
	case "all":
		return []string{place + ".a", place + ".b"}
	case "saga":
		return []string{place + ".book", place + ".drop"}
	}
	return []string{place}
}

// cast are the workflows, in one process.
type cast struct {
	node    string
	witness string
	http    *http.Client
	tour    *bide.Workflow[job, story]
	kid     *bide.Workflow[job, story]
	loop    *bide.LoopDefinition
}

func newCast(node, witness string) *cast {
	c := &cast{node: node, witness: "http://" + witness + "/", http: &http.Client{Timeout: 1500 * time.Millisecond}}
	c.kid = bide.Define(kidName, func(ctx bide.Context, in job) (story, error) {
		p := &part{cast: c, ctx: ctx, job: in, story: in.Told, place: "kid"}
		if err := bide.Sleep(ctx, p.within(10*time.Millisecond, 500*time.Millisecond)); err != nil {
			return story{}, err
		}
		err := p.step("kid", soon)
		return story{Calls: []call{{in.ID, p.story.last()}}}, err
	})
	c.tour = bide.Define(tourName, c.run)
	c.loop = bide.Loop(loopName, c.iterate, bide.Every(loopEvery), bide.RunImmediately{}, bide.Exact{},
		bide.MaxMultiplier(1), bide.AttemptTimeout(4*time.Second))
	return c
}

func (c *cast) run(ctx bide.Context, in job) (story, error) {
	p := &part{cast: c, ctx: ctx, job: in, story: in.Told}
	for i, verb := range in.Rounds[in.Round] {
		p.place = place(in.Round, i, verb)
		if err := verbs[verb](p); err != nil {
			return story{}, fmt.Errorf("%s: %w", p.place, err)
		}
	}
	if in.Round+1 < len(in.Rounds) {
		in.Round++
		in.Told = p.story
		return story{}, bide.ContinueAsNew(ctx, in)
	}
	if _, err := bide.Receive[string](ctx, "go"); err != nil {
		return story{}, err
	}
	for _, name := range []string{"go", "tally"} { // more than was sent?
		switch got, err := bide.Receive[string](ctx, name, bide.Timeout(20*time.Millisecond)); {
		case err == nil:
			p.story.Got = append(p.story.Got, name+" again: "+got)
		case !errors.Is(err, bide.ErrTimeout):
			return story{}, err
		}
	}
	return p.story, nil
}

// iterate is an iteration of the loop.
func (c *cast) iterate(ctx context.Context) error {
	e := event{What: beat, Job: loopName, Call: nonce(), Due: bide.ScheduledAt(ctx)}
	if _, err := c.post(ctx, e); err != nil {
		return err
	}
	if err := pause(ctx, 5*time.Millisecond); err != nil {
		return err
	}
	e.What = ebb
	_, err := c.post(ctx, e)
	return err
}

func place(round, i int, verb string) string { return fmt.Sprintf("%d.%d.%s", round, i, verb) }

// post tells the witness, and returns what it answers.
func (c *cast) post(ctx context.Context, e event) (ready bool, err error) {
	e.Node, e.Sent = c.node, time.Now()
	body, err := json.Marshal(e)
	if err != nil {
		return false, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.witness, bytes.NewReader(body))
	if err != nil {
		return false, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return false, err
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&ready); err != nil {
		return false, err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return ready, err
}

func nonce() string {
	var b [6]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// part is a run at one of its verbs.
type part struct {
	*cast
	ctx   bide.Context
	job   job
	place string
	story story
}

func (p *part) tell(place, made string) { p.story.Calls = append(p.story.Calls, call{place, made}) }

// within is a duration between the two, always the same at one place of a run.
func (p *part) within(from, to time.Duration) time.Duration {
	h := fnv.New64a()
	_, _ = io.WriteString(h, p.job.ID+" "+p.place) // never fails
	return from + time.Duration(h.Sum64()%uint64(to-from))
}

// act does the work of a step, as the witness sees it.
func (p *part) act(ctx context.Context, e event, fail func(attempt int) error) (string, error) {
	e.What, e.Job, e.Call, e.Attempt = begin, p.job.ID, nonce(), bide.AttemptNumber(ctx)
	if _, err := p.post(ctx, e); err != nil {
		return "", err
	}
	if err := pause(ctx, 2*time.Millisecond); err != nil {
		return "", err
	}
	e.What = end
	if _, err := p.post(ctx, e); err != nil {
		return "", err
	}
	if fail != nil {
		if err := fail(e.Attempt); err != nil {
			return "", err
		}
	}
	return e.Call, nil
}

// call is a step of which the witness hears.
func (p *part) call(ctx bide.Context, e event, fail func(attempt int) error, opts ...bide.StepOption) (string, error) {
	return bide.Step(ctx, e.Place, func(ctx context.Context) (string, error) { return p.act(ctx, e, fail) }, opts...)
}

func (p *part) step(place string, opts ...bide.StepOption) error {
	return p.stepThat(place, nil, opts...)
}

func (p *part) stepThat(place string, fail func(attempt int) error, opts ...bide.StepOption) error {
	got, err := p.call(p.ctx, event{Place: place, Prev: p.story.last()}, fail, opts...)
	if err == nil {
		p.tell(place, got)
	}
	return err
}

// stepAt is the step after a timer.
func (p *part) stepAt(place string, due time.Time) error {
	got, err := p.call(p.ctx, event{Place: place, Prev: p.story.last(), Due: due}, nil, soon)
	p.tell(place, got)
	return err
}

func (p *part) sleep(d time.Duration) error {
	due := bide.Now(p.ctx).Add(d)
	if err := bide.Sleep(p.ctx, d); err != nil {
		return err
	}
	return p.stepAt(p.place, due)
}

func (p *part) signal() error {
	for range tallies {
		got, err := bide.Receive[string](p.ctx, "tally")
		if err != nil {
			return err
		}
		p.story.Got = append(p.story.Got, got)
	}
	return p.step(p.place, soon)
}

// poll asks the witness until it is ready. Polls of the same share ask for the same.
func (p *part) poll(what, share string) error {
	opts := []bide.PollOption{bide.Every(200 * time.Millisecond), bide.Timeout(time.Hour), bide.AttemptTimeout(2 * time.Second)}
	if share != "" {
		opts = append(opts, bide.Share(share))
		what = share
	}
	e := event{What: look, Job: p.job.ID, Place: p.place, Prev: p.story.last(), URL: what}
	_, err := bide.Poll(p.ctx, p.place, func(ctx context.Context) (bool, error) {
		e := e
		e.Call, e.Attempt = nonce(), bide.AttemptNumber(ctx)
		return p.post(ctx, e)
	}, func(ready bool) bool { return ready }, opts...)
	if err != nil {
		return err
	}
	return p.step(p.place, soon)
}

// hook has the witness told of a URL, and waits for what is delivered to it.
func (p *part) hook() error {
	hook, err := bide.NewWebhook[string](p.ctx, "hook")
	if err != nil {
		return err
	}
	got, err := p.call(p.ctx, event{Place: p.place, Prev: p.story.last(), URL: hook.URL()}, nil, soon)
	if err != nil {
		return err
	}
	p.tell(p.place, got)
	text, err := hook.Receive(p.ctx)
	if err != nil {
		return err
	}
	p.story.Got = append(p.story.Got, text)
	switch more, err := hook.Receive(p.ctx, bide.Timeout(20*time.Millisecond)); {
	case err == nil:
		p.story.Got = append(p.story.Got, "hook again: "+more)
	case !errors.Is(err, bide.ErrTimeout):
		return err
	}
	return nil
}

func (p *part) all() error {
	at := p.story.last()
	lane := func(name string) bide.NamedBranch[string] {
		return bide.Branch(name, func(ctx bide.Context) (string, error) {
			if err := bide.Sleep(ctx, p.within(time.Millisecond, 300*time.Millisecond)); err != nil {
				return "", err
			}
			return p.call(ctx, event{Place: p.place + "." + name, Lane: name, Prev: at}, nil, soon)
		})
	}
	got, err := bide.All(p.ctx, lane("a"), lane("b"))
	if err != nil {
		return err
	}
	p.tell(p.place+".a", got[0])
	p.tell(p.place+".b", got[1])
	return nil
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
		return p.call(ctx, event{Place: p.place + ".pay", Prev: at}, func(int) error { return bide.Permanent(broke) }, soon)
	})
	if err == nil || !strings.Contains(err.Error(), broke.Error()) {
		return fmt.Errorf("a saga that cannot be paid: %w", err)
	}
	p.tell(p.place+".drop", "") // a compensation has no result to tell
	return nil
}
