package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/postgres"
)

// job is the input of a run: of a tour, which uses one verb after another, or of
// what a tour starts.
type job struct {
	ID     string     `json:"id"`
	Rounds [][]string `json:"rounds,omitempty"` // verbs; from one round to the next it begins anew
	Round  int        `json:"round,omitempty"`
	Told   story      `json:"told,omitzero"`  // by the rounds before
	Fate   string     `json:"fate,omitempty"` // of a victim
}

// story is what a run says of itself in the end.
type story struct {
	Calls []call   `json:"calls,omitempty"`
	Got   []string `json:"got,omitempty"` // signals, deliveries, and how victims ended
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
	tourName   = "tour"
	kidName    = "kid"
	clerkName  = "clerk"
	victimName = "victim"
	loopName   = "beat"
	choreName  = "chore"

	loopEvery = 300 * time.Millisecond

	// ledgers is the queue of those who have the database at hand.
	ledgers = "ledgers"
)

// cast are the workflows, in one process.
type cast struct {
	node    string
	witness string
	http    *http.Client
	store   *postgres.Store // nil in a process that has none at hand
	tour    *bide.Workflow[job, story]
	kid     *bide.Workflow[job, story]
	clerk   *bide.Workflow[job, story]
	victim  *bide.Workflow[job, story]
	loop    *bide.LoopDefinition
	chore   *bide.LoopDefinition
}

func newCast(node, witness string, store *postgres.Store) *cast {
	c := &cast{node: node, witness: "http://" + witness + "/", http: &http.Client{Timeout: callTimeout}, store: store}
	c.kid = bide.Define(kidName, c.play)
	c.clerk = bide.Define(clerkName, c.enter)
	c.victim = bide.Define(victimName, c.suffer)
	c.tour = bide.Define(tourName, c.travel)
	c.loop = bide.Loop(loopName, c.iterate(loopName), bide.Every(loopEvery), bide.RunImmediately{}, bide.Exact{},
		bide.MaxMultiplier(1), bide.AttemptTimeout(4*time.Second))
	c.chore = bide.Loop(choreName, c.iterate(choreName), bide.Every(time.Hour), bide.Exact{}, bide.MaxMultiplier(1),
		bide.AttemptTimeout(4*time.Second))
	return c
}

// callTimeout is how long a call of the witness may take.
const callTimeout = 1500 * time.Millisecond

// travel is the tour.
func (c *cast) travel(ctx bide.Context, in job) (story, error) {
	p := &part{cast: c, ctx: ctx, job: in, story: in.Told}
	for i, verb := range in.Rounds[in.Round] {
		p.place = place(in.Round, i, verb)
		if err := verbs[verb].do(p); err != nil {
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

// play is a child.
func (c *cast) play(ctx bide.Context, in job) (story, error) {
	p := &part{cast: c, ctx: ctx, job: in, story: in.Told, place: "kid"}
	if err := bide.Sleep(ctx, p.within(10*time.Millisecond, 500*time.Millisecond)); err != nil {
		return story{}, err
	}
	err := p.step("kid", soon)
	return p.story, err
}

// iterate is an iteration of a loop.
func (c *cast) iterate(name string) func(context.Context) error {
	return func(ctx context.Context) error {
		e := event{What: beat, Job: name, Call: nonce(), Due: bide.ScheduledAt(ctx), Key: bide.IdempotencyKey(ctx)}
		if _, err := c.post(ctx, e); err != nil {
			return err
		}
		if err := bide.Publish(ctx, "latest", e.Due); err != nil {
			return err
		}
		if err := pause(ctx, 5*time.Millisecond); err != nil {
			return err
		}
		e.What = ebb
		_, err := c.post(ctx, e)
		return err
	}
}

// child starts a run as a child of this one, and waits for it.
func (p *part) child() error {
	got, err := bide.Child(p.ctx, p.cast.kid, p.sub(""))
	p.tell(p.place, got.last())
	return err
}

// sub is the job of a run that the tour starts here.
func (p *part) sub(fate string) job {
	return job{ID: p.job.ID + "/" + p.place, Told: story{Calls: []call{{"", p.story.last()}}}, Fate: fate}
}

func place(round, i int, verb string) string { return fmt.Sprintf("%d.%d.%s", round, i, verb) }
