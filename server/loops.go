package server

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/api"
	"github.com/bide-dev/bide/internal/netguard"
	"github.com/bide-dev/bide/probe"
)

const (
	// readLoops is how long another server's change of a probe loop may go unnoticed.
	readLoops = 10 * time.Second
	// swapLoops lies between two changes of the worker at least: many changes that come
	// together are one.
	swapLoops = time.Second
)

// loops makes and runs probe loops: those whose spec came over HTTP. It implements
// [api.Loops].
type loops struct {
	s       *Server
	changed chan struct{} // there may be another set of them
}

// define makes a loop of a spec that somebody has given: it reaches what webhooks do.
func (l *loops) define(spec probe.LoopSpec) (*bide.LoopDefinition, error) {
	return probe.Loop(spec, []probe.Option{probe.Guard(), probe.Transport(l.s.outward)}, bide.Queue(api.LoopQueue))
}

// Check implements [api.Loops].
func (l *loops) Check(name string, data json.RawMessage) (json.RawMessage, error) {
	spec, err := probe.ParseLoop(data)
	if err != nil {
		return nil, err
	}
	if spec.Name != "" && spec.Name != name {
		return nil, &bide.InvalidError{Field: "name", Reason: "is another than in the path; leave it out"}
	}
	spec.Name = name
	if _, err := l.define(spec); err != nil {
		return nil, err
	}
	if !l.s.cfg.AllowPrivate && leadsInside(spec.URL) {
		return nil, &bide.InvalidError{Field: "url", Reason: "leads to an address that is not public"}
	}
	return json.Marshal(spec)
}

// leadsInside reports whether a URL says by itself that it is one of this network.
// Where a name leads is seen when it is asked.
func leadsInside(text string) bool {
	to, err := url.Parse(text)
	if err != nil {
		return false
	}
	addr, err := netip.ParseAddr(to.Hostname())
	return err == nil && netguard.Check(addr) != nil || strings.EqualFold(to.Hostname(), "localhost")
}

// Shows implements [api.Loops]: who may change a spec may see it.
func (l *loops) Shows(r *http.Request) bool { return refused(r.Context(), ScopeWrite) == nil }

// Changed implements [api.Loops].
func (l *loops) Changed() {
	select {
	case l.changed <- struct{}{}:
	default:
	}
}

// kept is a probe loop as this server knows it; loop is nil if its spec is none that
// this server understands.
type kept struct {
	version int64
	loop    *bide.LoopDefinition
}

// run runs the probe loops of the store until ctx ends. While there are none it looks
// for some, which is one read of the store in a while: they may be made by another
// server, and are not to stand still when that one ends.
func (l *loops) run(ctx context.Context) {
	var work sync.WaitGroup
	defer work.Wait()
	var known map[string]kept
	stop := func() {}
	defer func() { stop() }()
	failed := make(chan error)
	look := time.NewTicker(readLoops)
	defer look.Stop()
	for {
		facts, err := l.s.store.Facts(ctx, api.LoopFact)
		switch {
		case ctx.Err() != nil || errors.Is(err, bide.ErrClosed):
			return
		case err != nil:
			l.s.log.Error("cannot read the probe loops; trying again", "error", err)
		case !l.isKnown(facts, known):
			known = l.understand(facts, known)
			stop()
			stop = l.work(ctx, known, &work, failed)
			if !pause(ctx, swapLoops) {
				return
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-l.changed:
		case <-look.C:
		case err := <-failed:
			l.s.log.Error("the probe loops have stopped; beginning them again", "error", err)
			known = nil
			if !pause(ctx, readLoops) {
				return
			}
		}
	}
}

// isKnown reports whether the facts are those that were there before.
func (l *loops) isKnown(facts []bide.Fact, known map[string]kept) bool {
	return len(facts) == len(known) && !slices.ContainsFunc(facts, func(f bide.Fact) bool { return known[f.Key].version != f.Version })
}

// understand makes loops of the specs. One that is as before stays the loop that it
// was, with what it knows of its last answer.
func (l *loops) understand(facts []bide.Fact, before map[string]kept) map[string]kept {
	known := map[string]kept{}
	for _, f := range facts {
		k, ok := before[f.Key]
		if !ok || k.version != f.Version {
			k = kept{version: f.Version}
			spec, err := probe.ParseLoop(f.Value)
			if err == nil {
				spec.Name = f.Key
				k.loop, err = l.define(spec)
			}
			if err != nil {
				l.s.log.Error("a probe loop does not run here, its spec is not understood", "loop", f.Key, "error", err)
			}
		}
		known[f.Key] = k
	}
	return known
}

// work sets a worker to the loops, and returns what stops it, with grace and without
// waiting: no iteration overlaps with one of the next worker's, since a loop is a
// lease.
func (l *loops) work(ctx context.Context, known map[string]kept, work *sync.WaitGroup, failed chan<- error) (stop func()) {
	worker := bide.NewWorker(l.s.store, bide.WorkerConfig{Queues: []string{api.LoopQueue}, GracePeriod: gracePeriod, Logger: l.s.log})
	n := 0
	for k := range maps.Values(known) {
		if k.loop != nil {
			worker.Register(k.loop)
			n++
		}
	}
	if n == 0 {
		return func() {}
	}
	ctx, stop = context.WithCancel(ctx)
	work.Go(func() {
		err := worker.Run(ctx)
		if err == nil || errors.Is(err, bide.ErrClosed) {
			return
		}
		select {
		case failed <- err:
		case <-ctx.Done():
		}
	})
	return stop
}

// pause waits, and reports whether ctx is still alive.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
