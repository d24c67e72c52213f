package api

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/bide-dev/bide"
)

// hub has a feed for each run that somebody waits for.
type hub struct {
	h     *Handler
	mu    sync.Mutex
	feeds map[string]*feed
}

// feed follows one run on behalf of all who wait for it: it is told of a change
// once, and reads the store once.
type feed struct {
	h    *Handler
	id   string
	refs int // under the hub's lock
	stop context.CancelFunc
	poke chan struct{} // asks for a read

	mu    sync.Mutex
	subs  map[chan struct{}]struct{}
	begun int           // reads
	ended int           // of them
	next  chan struct{} // closed when the read is over that ends next
	last  *snapshot
	err   error

	tail tail
}

// snapshot is a run as it was read, with what its readers make of it: once for all
// of them.
type snapshot struct {
	run  bide.Run
	tag  string
	at   time.Time
	prev int64 // the version of the snapshot before; -1: there was none

	body     func() ([]byte, error) // the run as it is told
	messages func() (replay, error) // since prev
}

// subscription is one reader's hold of a feed.
type subscription struct {
	*feed
	ch chan struct{} // receives after each read
}

// join subscribes to a run; ch, which may be that of other subscriptions too, must
// have room for one. The reader leaves when it is done.
func (hb *hub) join(id string, ch chan struct{}) *subscription {
	hb.mu.Lock()
	defer hb.mu.Unlock()
	f := hb.feeds[id]
	if f == nil {
		ctx, stop := context.WithCancel(context.Background())
		f = &feed{h: hb.h, id: id, stop: stop, poke: make(chan struct{}, 1), subs: map[chan struct{}]struct{}{}, next: make(chan struct{})}
		hb.feeds[id] = f
		go f.follow(ctx)
	}
	f.refs++
	f.mu.Lock()
	f.subs[ch] = struct{}{}
	f.mu.Unlock()
	return &subscription{f, ch}
}

func (s *subscription) leave() {
	hb := &s.h.feeds
	hb.mu.Lock()
	defer hb.mu.Unlock()
	s.mu.Lock()
	delete(s.subs, s.ch)
	s.mu.Unlock()
	if s.refs--; s.refs == 0 {
		delete(hb.feeds, s.id)
		s.stop()
	}
}

const (
	// calm is the least time between two reads of one run that its changes ask for,
	// brisk that between two that readers ask for who come.
	calm  = 20 * time.Millisecond
	brisk = 5 * time.Millisecond
	// askAgain is how often a store is asked that cannot be read.
	askAgain = 500 * time.Millisecond
)

// follow reads the run whenever it has changed or a reader asks, until nobody is
// left. It subscribes before the first read: what happens in between is not lost.
func (f *feed) follow(ctx context.Context) {
	wake, stop := bide.Wake(f.h.store, f.id, false)
	defer stop()
	rest := time.NewTimer(0)
	defer rest.Stop()
	<-rest.C
	for {
		woken := false
		select {
		case <-wake:
			woken = true
		case <-f.poke:
		case <-ctx.Done():
			return
		}
		f.read(ctx, woken)
		rest.Reset(brisk)
		select {
		case <-rest.C:
		case <-ctx.Done():
			return
		}
		rest.Reset(calm - brisk)
		select {
		case <-rest.C:
		case <-f.poke: // a reader waits for it
			f.ask()
		case <-ctx.Done():
			return
		}
	}
}

func (f *feed) ask() {
	select {
	case f.poke <- struct{}{}:
	default:
	}
}

// read reads the run and tells the readers if it was woken to do so, or there is
// news. It does so on a stack of its own, which is given back: a database needs a
// deep one, and a feed lasts.
func (f *feed) read(ctx context.Context, woken bool) {
	f.mu.Lock()
	f.begun++
	f.mu.Unlock()
	var run bide.Run
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		run, err = f.h.store.Run(ctx, f.id)
	}()
	<-done
	if ctx.Err() != nil {
		return
	}
	if err != nil && !errors.Is(err, bide.ErrNotFound) && !errors.Is(err, bide.ErrClosed) {
		f.h.cfg.Logger.Error("cannot read a run that is waited for; trying again", "run", f.id, "error", err)
		time.AfterFunc(askAgain, f.ask)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ended++
	close(f.next)
	f.next = make(chan struct{})
	before := f.last
	if f.err = err; err == nil {
		f.last = f.snap(run)
	}
	if !woken && err == nil && before != nil && before.tag == f.last.tag {
		return
	}
	for ch := range f.subs {
		select {
		case ch <- struct{}{}:
		default: // it has one to see already
		}
	}
}

// fresh is how long what was made of a snapshot may be told again while the run
// does not change: the time of its next poll is in it.
const fresh = time.Second

// snap makes the snapshot after the last one; the feed's lock is held.
func (f *feed) snap(run bide.Run) *snapshot {
	at, prev := time.Now(), int64(-1)
	if old := f.last; old != nil {
		if prev = old.run.Version; old.tag == tag(&run) {
			if at.Sub(old.at) < fresh {
				return old
			}
			prev = old.prev
		}
	}
	return f.h.snapshot(run, at, prev)
}

func (h *Handler) snapshot(run bide.Run, at time.Time, prev int64) *snapshot {
	s := &snapshot{run: run, tag: tag(&run), at: at, prev: prev}
	s.body = sync.OnceValues(func() ([]byte, error) { return json.Marshal(h.view(&s.run, s.at)) })
	s.messages = sync.OnceValues(func() (replay, error) { return h.replay(&s.run, prev) })
	return s
}

// latest is the newest snapshot there is.
func (f *feed) latest() (*snapshot, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last, f.err
}

var errClosing = errors.New("the handler is closed")

// fresh returns a snapshot that was begun to be read after the call.
func (f *feed) fresh(ctx context.Context) (*snapshot, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for want := f.begun + 1; f.ended < want; {
		next := f.next
		f.mu.Unlock()
		f.ask()
		var err error
		select {
		case <-next:
		case <-ctx.Done():
			err = ctx.Err()
		case <-f.h.closing:
			err = errClosing
		}
		f.mu.Lock()
		if err != nil {
			return nil, err
		}
	}
	return f.last, f.err
}
