package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/bide-dev/bide"
)

// outcome is a run that was asked for, and how it ended.
type outcome struct {
	Job     job
	Run     string    // id; "" if no start was acknowledged
	Started time.Time // when it was acknowledged
	After   time.Time // before then it is not to begin
	Ordered bool      // it was started in a transaction, which may have been dropped
	Orders  int       // rows of that transaction
	Exists  bool      // the run of that transaction
	State   string
	Error   string
	Story   story
	Latest  string   // the call that it has published last
	Records []record // its history
	Stream  []chunk  // what it has streamed
	Live    []chunk  // what was read of that while it ran
	Victims []victim
	Unheard bool   // who waits for its result is not told that it has ended
	History string // for people, of one that did not end well

	started  chan struct{} // closed once Run is known
	followed chan struct{} // closed once Live is
}

// record is a line of a run's history.
type record struct {
	Seq        int64
	Path, Kind string
}

func (j job) uses(verb string) bool {
	return slices.ContainsFunc(j.Rounds, func(round []string) bool { return slices.Contains(round, verb) })
}

// each calls fn for each verb of the job.
func (j job) each(fn func(place string, v verb)) {
	for r, round := range j.Rounds {
		for i, name := range round {
			fn(place(r, i, name), verbs[name])
		}
	}
}

// gets are what its run has got in the end.
func gets(j job) (values []string) {
	j.each(func(place string, v verb) {
		if v.gets != nil {
			values = append(values, v.gets(j.ID, place)...)
		}
	})
	return values
}

// tallies are the signals that nobody asks for.
func tallies(j job) (values []string) {
	j.each(func(place string, _ verb) {
		if verbOf(place) == "signal" {
			values = append(values, tallied(j.ID, place)...)
		}
	})
	return values
}

// over reports whether the run has ended; one that is to be retried has not.
func (p *patrons) over(o *outcome, s bide.State) bool {
	return s.Ended() && (s != bide.Failed || !o.Job.uses("retry"))
}

// settle waits until every run has ended, at most so long, and returns the outcomes.
func (p *patrons) settle(ctx context.Context, most time.Duration) []outcome {
	limited, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	p.mu.Lock()
	var all []*outcome
	for _, o := range p.outcomes {
		all = append(all, o)
	}
	p.mu.Unlock()
	slices.SortFunc(all, func(a, b *outcome) int { return strings.Compare(a.Job.ID, b.Job.ID) })
	var reads sync.WaitGroup
	slots := make(chan struct{}, 8)
	for _, o := range all {
		reads.Go(func() {
			select {
			case <-o.started:
			case <-limited.Done():
				return
			}
			slots <- struct{}{}
			p.read(limited, o)
			<-slots
		})
	}
	reads.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	var copies []outcome
	for _, o := range all {
		copies = append(copies, *o)
	}
	return copies
}

// unheard is how long after a run's end its result may come to who waits for it.
const unheard = 5 * time.Second

// await waits for the run's end, by asking for it and by waiting for its result, and
// reports whether only who asks gets to know.
func (p *patrons) await(limited context.Context, o *outcome) bool {
	waiting, cancel := context.WithCancel(limited)
	defer cancel()
	heard := make(chan struct{})
	go func() {
		defer close(heard)
		for waiting.Err() == nil && !p.hears(waiting, o) {
			_ = pause(waiting, 100*time.Millisecond)
		}
	}()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-heard:
			return false
		case <-tick.C:
		}
		if r, err := p.client.Get(limited, o.Run); err == nil && p.over(o, r.State) {
			select {
			case <-heard:
				return false
			case <-time.After(unheard):
				return limited.Err() == nil
			}
		}
	}
}

// hears waits for the run's result, or watches it to its end, and reports whether
// that has come.
func (p *patrons) hears(ctx context.Context, o *outcome) bool {
	if p.dice("watch"+o.Run).IntN(2) == 0 {
		_, err := p.tour.Handle(p.client, o.Run).Result(ctx)
		ended, ok := errors.AsType[*bide.RunError](err)
		return err == nil || ok && p.over(o, ended.State)
	}
	over := false
	for run, err := range p.client.Watch(ctx, o.Run) {
		over = err == nil && p.over(o, run.State)
	}
	return over
}

// list is the ids of all tours, page by page.
func (p *patrons) list(ctx context.Context) (all []string, err error) {
	q := bide.Query{Workflow: tourName, Limit: 100}
	for {
		runs, err := p.client.Runs(ctx, q)
		if err != nil || len(runs) == 0 {
			return all, err
		}
		for _, r := range runs {
			all = append(all, r.ID)
		}
		q.Before = runs[len(runs)-1].ID
	}
}

// read waits for the run's end and takes it down.
func (p *patrons) read(limited context.Context, o *outcome) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(limited), patience)
	defer cancel()
	if o.Ordered {
		o.Orders = p.rows(o.Job)
		_, err := p.client.Get(ctx, orderID(o.Job))
		o.Exists = !errors.Is(err, bide.ErrNotFound)
	}
	if o.Run == "" {
		return
	}
	o.Unheard = p.await(limited, o)
	run, err := p.client.Get(ctx, o.Run)
	if err != nil {
		o.State, o.Error = "lost", err.Error()
		return
	}
	o.State = run.State.String()
	if run.Error != nil {
		o.Error = run.Error.Err().Error()
	}
	records, err := p.client.History(ctx, o.Run, 0)
	if run.State != bide.Succeeded {
		text, _ := json.Marshal(map[string]any{"run": run, "history": records, "error": fmt.Sprint(err), "rows": p.c.rows(ctx, run.Version)})
		o.History = string(text)
		return
	}
	for _, r := range records {
		o.Records = append(o.Records, record{r.Seq, r.Path, r.Kind.String()})
	}
	o.Job.each(func(place string, _ verb) {
		if _, ok := fates[verbOf(place)]; ok {
			o.Victims = append(o.Victims, p.readVictim(ctx, o.Job.ID, place))
		}
	})
	if streams(o.Job) {
		var serr error
		o.Stream, serr = p.readStream(ctx, o.Run)
		select {
		case <-o.followed:
		case <-ctx.Done():
			serr = errors.Join(serr, errors.New("whoever follows its stream does not see its end"))
		}
		err = errors.Join(err, serr)
	}
	_, verr := p.client.Value(ctx, o.Run, "latest", &o.Latest)
	if err = errors.Join(err, verr, json.Unmarshal(run.Result, &o.Story)); err != nil {
		o.Error = err.Error()
	}
}
