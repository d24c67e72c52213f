package postgres

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/bide-dev/bide"
)

// hint is what a process tells the others of a transaction, so that they need not
// look all the time. It is never more than a hint: who misses it looks in time.
type hint struct {
	From    int64    `json:"f,omitempty"` // the member
	Hello   bool     `json:"h,omitempty"` // it has come
	Gone    bool     `json:"g,omitempty"` // it has ended, and left what it held
	Members []int64  `json:"m,omitempty"` // those whose runs were changed
	Routes  []int64  `json:"r,omitempty"` // routes with something due,
	Since   []int64  `json:"s,omitempty"` // from then on
	Ended   []string `json:"e,omitempty"` // runs
	Changed []string `json:"c,omitempty"` // other runs
	Look    bool     `json:"l,omitempty"` // more has changed than is said
}

// mostBytes is how long a notification may be, by far: Postgres takes 7,999.
const mostBytes = 7000

// mostChanged is how many runs are named that have changed and not ended; who
// watches one of more looks for himself.
const mostChanged = 100

// channel is where the processes of a schema tell each other.
func (s *Store) channel() string {
	if name := "bide_" + s.schema; len(name) < 64 {
		return name
	}
	sum := sha256.Sum256([]byte(s.schema))
	return "bide_" + hex.EncodeToString(sum[:16])
}

const notifySQL = `SELECT pg_notify($1, $2)`

func (w *writer) say(ctx context.Context, h hint) error {
	text, err := json.Marshal(h)
	if err != nil {
		return err
	}
	_, err = w.conn.Exec(ctx, notifySQL, w.s.channel(), string(text))
	return err
}

// hello tells the others that this process has come.
func (w *writer) hello() error {
	if !w.others || w.s.noNotify {
		return nil
	}
	return w.say(w.ctx, hint{From: w.me, Hello: true})
}

// tellDue notes that others may take a run that is due.
func (w *writer) tellDue(r *route, since int64) {
	if old, ok := w.due[r]; !ok || since < old {
		w.due[r] = since
	}
}

// queueHint adds what others should know of the batch.
func (w *writer) queueHint(b *pgx.Batch) {
	if !w.others || w.s.alone { // one that does not listen may have neighbours that do
		return
	}
	h, size := hint{From: w.me}, 0
	flush := func() {
		text, _ := json.Marshal(h) // of strings and numbers
		b.Queue(notifySQL, w.s.channel(), string(text))
		h, size = hint{From: w.me}, 0
	}
	room := func(bytes int) {
		if size += bytes; size > mostBytes {
			flush()
			size = bytes
		}
	}
	for m := range w.foreign {
		room(20)
		h.Members = append(h.Members, m)
	}
	for r, since := range w.due {
		room(40) // two numbers
		h.Routes, h.Since = append(h.Routes, r.k), append(h.Since, since)
	}
	named := 0
	for _, t := range w.touched {
		quoted, _ := json.Marshal(t.id)
		switch {
		case t.over:
			room(len(quoted) + 1)
			h.Ended = append(h.Ended, t.id)
		case named >= mostChanged || len(quoted) > 100:
			h.Look = true
		case t.freed == nil:
			named++
			room(len(quoted) + 1)
			h.Changed = append(h.Changed, t.id)
		}
	}
	if len(h.Members)+len(h.Routes)+len(h.Ended)+len(h.Changed) > 0 || h.Look {
		flush()
	}
}

// heard acts on another process's hint.
func (w *writer) heard(h *hint) error {
	if h.Hello {
		w.others = true
		w.nextBeat()
	}
	if h.Gone {
		w.beatAt = 0
	}
	for i, k := range h.Routes {
		r := w.byKey[k]
		if r == nil {
			if err := w.loadRoutes(w.ctx); err != nil {
				return err
			}
			if r = w.byKey[k]; r == nil {
				continue
			}
		}
		if i < len(h.Since) {
			w.dueAt(r, h.Since[i])
		}
	}
	return nil
}

// named reports whether others have said that they have changed what this process
// holds.
func (w *writer) named(ops []*op) bool {
	return slices.ContainsFunc(ops, func(o *op) bool { return o.hint != nil && slices.Contains(o.hint.Members, w.me) })
}

// listener hears what other processes say, on a connection of its own.
type listener struct {
	once   sync.Once
	cancel context.CancelFunc
	done   chan struct{}
	mu     sync.Mutex
}

// start begins to listen, once.
func (e *listener) start(s *Store) {
	if s.noNotify {
		return
	}
	e.once.Do(func() {
		ctx, cancel := context.WithCancel(context.Background())
		e.mu.Lock()
		e.cancel, e.done = cancel, make(chan struct{})
		e.mu.Unlock()
		ready := make(chan struct{})
		go func() {
			defer close(e.done)
			s.listen(ctx, sync.OnceFunc(func() { close(ready) }))
		}()
		<-ready
	})
}

func (e *listener) stop() {
	e.once.Do(func() {})
	e.mu.Lock()
	cancel, done := e.cancel, e.done
	e.mu.Unlock()
	if cancel != nil {
		cancel()
		<-done
	}
}

// listen hears until the store is closed. ready is called when the first try to
// listen is over.
func (s *Store) listen(ctx context.Context, ready func()) {
	defer ready()
	for tries := 0; ctx.Err() == nil; tries++ {
		if tries > 0 {
			select {
			case <-ctx.Done():
				return
			case <-time.After(jittered(min(50*time.Millisecond<<min(tries, 8), 5*time.Second))):
			}
		}
		conn, err := pgx.ConnectConfig(ctx, s.dsn)
		if err != nil {
			ready()
			continue
		}
		if _, err = conn.Exec(ctx, "LISTEN "+pgx.Identifier{s.channel()}.Sanitize()); err == nil {
			ready()
			if tries > 0 { // something may have been missed
				s.hintAll()
				_ = s.group.Add(&op{hint: &hint{Gone: true}})
			}
			tries = 1
			s.hear(ctx, conn)
		}
		ready()
		_ = conn.Close(context.WithoutCancel(ctx))
	}
}

func (s *Store) hear(ctx context.Context, conn *pgx.Conn) {
	for {
		quiet, cancel := context.WithTimeout(ctx, s.quiet)
		n, err := conn.WaitForNotification(quiet)
		cancel()
		if err != nil && ctx.Err() == nil && quiet.Err() != nil { // is it there at all?
			quiet, cancel = context.WithTimeout(ctx, s.quiet)
			err = conn.Ping(quiet)
			cancel()
			if err == nil {
				continue
			}
		}
		if err != nil {
			return
		}
		h := &hint{}
		if err := json.Unmarshal([]byte(n.Payload), h); err != nil {
			continue // somebody else's
		}
		if h.From == s.me.Load() {
			continue
		}
		if h.Hello || h.Gone || len(h.Routes) > 0 || len(h.Members) > 0 {
			_ = s.group.Add(&op{hint: h})
		}
		s.relay(h)
	}
}

// relay tells those who watch what another process has done.
func (s *Store) relay(h *hint) {
	s.mu.Lock()
	defer s.mu.Unlock()
	tell := func(list []*watcher, over bool) {
		for _, x := range list {
			if !x.ends || over {
				x.tell(nil)
			}
		}
	}
	for _, id := range h.Ended {
		tell(s.watchers[id], true)
	}
	for _, id := range h.Changed {
		tell(s.watchers[id], false)
	}
	if h.Look {
		for _, list := range s.watchers {
			tell(list, false)
		}
	}
	if len(h.Ended)+len(h.Changed) > 0 || h.Look {
		tell(s.watchers[""], false)
	}
}

var _ bide.Waker = (*Store)(nil)
