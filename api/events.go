package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/bide-dev/bide"
)

// mostReplayed is how many lines of the history a stream tells at once; a reader
// that is further behind gets a snapshot.
const mostReplayed = 1000

// message is a line of the history as an event: without its data, which may be large.
type message struct {
	Run     string        `json:"run"`
	Seq     int64         `json:"seq"`
	Path    string        `json:"path"`
	Kind    bide.Kind     `json:"kind"`
	Name    string        `json:"name,omitempty"`
	Error   *bide.Failure `json:"error,omitempty"`
	Attempt int           `json:"attempt,omitempty"`
	At      time.Time     `json:"at"`
	Took    time.Duration `json:"took_ns,omitempty"`
	By      string        `json:"by,omitempty"`
}

func messageOf(run string, r *bide.Record) message {
	return message{run, r.Seq, r.Path, r.Kind, r.Name, r.Error, r.Attempt, r.At, r.Took, r.By}
}

// replay is a part of a run's history as events.
type replay struct {
	events []told
	gap    bool // some of what there was is not there any more, or it is too much
}

type told struct {
	id   string
	data []byte
}

// replay reads the history after a sequence number, up to the run as it was read.
func (h *Handler) replay(run *bide.Run, after int64) (replay, error) {
	records, err := h.store.History(context.Background(), run.ID, max(after, 0), mostReplayed+1)
	if err != nil {
		return replay{}, err
	}
	if len(records) > mostReplayed {
		return replay{gap: true}, nil
	}
	var r replay
	if after >= 0 && run.Generation > 0 { // the history begins where the run was continued as new
		first, err := h.store.History(context.Background(), run.ID, 0, 1)
		if err != nil {
			return r, err
		}
		if r.gap = len(first) == 0 || first[0].Seq > after; r.gap {
			return r, nil
		}
	}
	for i := range records {
		if records[i].Seq > run.Version {
			break
		}
		data, err := json.Marshal(messageOf(run.ID, &records[i]))
		if err != nil {
			return replay{}, err
		}
		r.events = append(r.events, told{strconv.FormatInt(records[i].Seq, 10), data})
	}
	return r, nil
}

// events tells what happens to a run.
func (h *Handler) events(w http.ResponseWriter, r *http.Request) error {
	if !streams(r) {
		return h.eventPage(w, r)
	}
	after, err := lastSeq(r)
	if err != nil {
		return err
	}
	return h.hold(w, r, func(w http.ResponseWriter, r *http.Request) error { return h.tell(w, r, after) })
}

// tell tells what happens to a run after an event that the client has seen.
func (h *Handler) tell(w http.ResponseWriter, r *http.Request, after int64) error {
	if over, err := h.closed(w); over {
		return err
	}
	t, err := h.newTeller(r, r.PathValue("id"), make(chan struct{}, 1))
	if err != nil {
		return err
	}
	defer t.feed.leave()
	if t.now.run.State.Ended() && after == t.now.run.Version {
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	out, err := openStream(w)
	if err != nil || r.Method == http.MethodHead {
		return err
	}
	t.out, t.ids = out, true
	t.begin(after)
	out.run(h, r, t.feed.ch, t.tell)
	return nil
}

// teller tells one run on a stream.
type teller struct {
	h     *Handler
	feed  *subscription
	out   *sse
	ids   bool      // the stream is of one run, and can be resumed by their sequence
	now   *snapshot // to be told next
	shown *snapshot // as the client knows the run
	seq   int64     // up to which the client has been told
	gap   bool
	over  bool
}

// newTeller subscribes to a run and reads it.
func (h *Handler) newTeller(r *http.Request, id string, ch chan struct{}) (*teller, error) {
	t := &teller{h: h, feed: h.feeds.join(id, ch)}
	s, err := t.feed.fresh(r.Context())
	if err != nil {
		t.feed.leave()
		return nil, err
	}
	t.now = s
	return t, nil
}

// begin sets where the client stands: after an event that it has seen, or at the
// beginning (-1).
func (t *teller) begin(after int64) {
	t.seq = after
	t.gap = after > t.now.run.Version // another store's, or another life's
}

// tell tells what has happened since the last time.
func (t *teller) tell() (over bool, err error) {
	if t.over {
		return true, nil
	}
	if t.shown != nil || t.now == nil {
		if t.now, err = t.feed.latest(); err != nil {
			return errors.Is(err, bide.ErrNotFound), passing(err)
		}
	}
	s := t.now
	if s == t.shown {
		return false, nil
	}
	if err := t.told(s); err != nil {
		return false, err
	}
	t.shown, t.seq = s, s.run.Version
	if t.over = s.run.State.Ended(); t.over {
		err = t.run("end", s)
	}
	return t.over, err
}

// passing leaves out what the feed tries again by itself.
func passing(err error) error {
	if errors.Is(err, bide.ErrClosed) {
		return err
	}
	return nil
}

func (t *teller) told(s *snapshot) error {
	if t.shown == nil && t.seq < 0 || t.gap {
		return t.run("snapshot", s)
	}
	line := "" // the last one told
	if s.run.Version > t.seq {
		messages, err := t.since(s)
		if err != nil {
			return err
		}
		if messages.gap {
			t.gap = true
			return t.run("snapshot", s)
		}
		last := strconv.FormatInt(s.run.Version, 10)
		for _, m := range messages.events {
			if m.id == last && s.run.State.Ended() { // the id of the end alone says that all is told
				m.id = ""
			}
			t.out.event(t.id(m.id), "message", m.data)
			line = m.id
		}
	}
	if s.run.State.Ended() { // told as the end
		return nil
	}
	switch was := t.shown; {
	case was == nil || was.run.State != s.run.State || !reflect.DeepEqual(was.run.Waiting, s.run.Waiting) ||
		!reflect.DeepEqual(was.run.Values, s.run.Values):
		return t.run("state", s)
	case !reflect.DeepEqual(was.run.Progress, s.run.Progress) && s.run.Progress != nil:
		v := t.h.view(&s.run, s.at)
		data, err := json.Marshal(struct {
			Run      string              `json:"run"`
			Version  int64               `json:"version"`
			Progress *bide.ProgressState `json:"progress"`
			ETA      *time.Time          `json:"eta"`
			NextPoll *int64              `json:"next_poll_ms"`
		}{v.ID, v.Version, v.Progress, v.ETA, v.NextPoll})
		if err != nil {
			return err
		}
		t.out.event(t.id(strconv.FormatInt(v.Version, 10)), "progress", data)
	case was.run.Version != s.run.Version && line != strconv.FormatInt(s.run.Version, 10):
		// It is as it was, but was not in between: who reads it elsewhere too may have
		// seen that, and would keep it.
		return t.run("state", s)
	}
	return nil
}

// since is what to tell of the history: what all readers share, unless this one is
// behind.
func (t *teller) since(s *snapshot) (replay, error) {
	if t.seq == s.prev {
		return s.messages()
	}
	return t.h.replay(&s.run, t.seq)
}

func (t *teller) id(id string) string {
	if t.ids {
		return id
	}
	return ""
}

// run sends an event whose data is the run.
func (t *teller) run(event string, s *snapshot) error {
	body, err := s.body()
	if err != nil {
		return err
	}
	if event == "snapshot" && t.gap {
		body = append([]byte(`{"gap":true,`), bytes.TrimPrefix(body, []byte("{"))...)
		t.gap = false
	}
	t.out.event(t.id(strconv.FormatInt(s.run.Version, 10)), event, body)
	return nil
}

// mostRuns is how many runs one stream tells.
const mostRuns = 100

// runsOf is which runs are meant: each value is an id, but a single one may be
// several with commas between them. An id with a comma is therefore said twice.
func runsOf(values []string) []string {
	if len(values) == 1 {
		values = strings.Split(values[0], ",")
	}
	ids := slices.DeleteFunc(slices.Clone(values), func(id string) bool { return id == "" })
	slices.Sort(ids)
	return slices.Compact(ids)
}

// allEvents tells what happens to several runs, or that something has changed.
func (h *Handler) allEvents(w http.ResponseWriter, r *http.Request) error {
	if !streams(r) {
		return refusal(notAcceptable, "this is a stream: send Accept: text/event-stream")
	}
	runs, many := r.URL.Query()["runs"]
	ids, hints := runsOf(runs), !many
	if many && (len(ids) == 0 || len(ids) > mostRuns) {
		return invalid("runs", "must be given for each of 1 to 100 ids, or once with ids separated by commas")
	}
	if text := r.URL.Query().Get("changes"); text != "" {
		var err error
		if hints, err = strconv.ParseBool(text); err != nil || !hints && !many {
			return invalid("changes", "must be true or, where runs are given, false")
		}
	}
	return h.hold(w, r, func(w http.ResponseWriter, r *http.Request) error { return h.tellSeveral(w, r, ids, hints) })
}

// tellSeveral tells what happens to the runs that are named; with hints also that
// some run has changed, for as long as the client listens.
func (h *Handler) tellSeveral(w http.ResponseWriter, r *http.Request, ids []string, hints bool) error {
	if over, err := h.closed(w); over {
		return err
	}
	news := make(chan struct{}, 1)
	var tellers []*teller
	var missing []string
	defer func() {
		for _, t := range tellers {
			t.feed.leave()
		}
	}()
	over := !hints
	for _, id := range ids {
		t, err := h.newTeller(r, id, news)
		if errors.Is(err, bide.ErrNotFound) {
			missing = append(missing, id)
			continue
		}
		if err != nil {
			return err
		}
		t.seq = -1
		tellers = append(tellers, t)
		over = over && t.now.run.State.Ended()
	}
	if over && lastEvent(r) == lastOfAll {
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	out, err := openStream(w)
	if err != nil || r.Method == http.MethodHead {
		return err
	}
	for _, id := range missing {
		if err := sendGone(out, id); err != nil {
			return err
		}
	}
	for _, t := range tellers {
		t.out = out
	}
	var changed atomic.Bool
	if hints {
		stop := h.hint(&changed, news)
		defer stop()
	}
	out.run(h, r, news, func() (bool, error) {
		if changed.Swap(false) {
			out.event("", "changed", []byte("{}"))
		}
		live, err := tellAll(out, tellers)
		if err != nil || live || hints {
			return false, err
		}
		out.event(lastOfAll, "done", []byte("{}"))
		return true, nil
	})
	return nil
}

// lastOfAll is the id of the last event of a stream of several runs.
const lastOfAll = "end"

func sendGone(out *sse, id string) error {
	data, err := json.Marshal(struct {
		Run string `json:"run"`
	}{id})
	if err == nil {
		out.event("", "gone", data)
	}
	return err
}

// tellAll tells all runs, each until its end, and whether any has not ended.
func tellAll(out *sse, tellers []*teller) (live bool, err error) {
	for _, t := range tellers {
		if t.over {
			continue
		}
		over, err := t.tell()
		if err != nil {
			return false, err
		}
		if over && !t.over { // purged
			t.over = true
			if err := sendGone(out, t.feed.id); err != nil {
				return false, err
			}
		}
		live = live || !over
	}
	return live, nil
}

// hintEvery is how often a stream says that something has changed, at most.
const hintEvery = time.Second

// hint has the flag set and news told when some run has changed: read the list again.
func (h *Handler) hint(changed *atomic.Bool, news chan<- struct{}) (stop func()) {
	changes, unwake := bide.Wake(h.store, "", false)
	done := make(chan struct{})
	go func() {
		rest := time.NewTimer(0)
		defer rest.Stop()
		for heard := changes; ; {
			select {
			case <-heard:
				heard = nil
				rest.Reset(hintEvery)
				changed.Store(true)
				select {
				case news <- struct{}{}:
				default: // there is some already
				}
			case <-rest.C:
				heard = changes
			case <-done:
				return
			}
		}
	}()
	return func() {
		unwake()
		close(done)
	}
}
