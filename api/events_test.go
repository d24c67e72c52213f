package api

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bide-dev/bide"
)

// stages says how far it is, publishes, and waits for a signal before each step.
var stages = bide.Define("stages", func(ctx bide.Context, n int) (int, error) {
	for i := range n {
		if _, err := bide.Receive[any](ctx, "on"); err != nil {
			return 0, err
		}
		_, err := bide.Step(ctx, fmt.Sprintf("step %d", i+1), func(ctx context.Context) (string, error) {
			_ = bide.Progress(ctx, float64(100*(i+1)/n), fmt.Sprintf("stage %d", i+1), bide.AtStep{Index: i + 1, Count: n, Name: "stage"})
			return "done\nwith it", nil
		})
		if err != nil {
			return 0, err
		}
	}
	return n, nil
})

func names(all []event) string {
	var list []string
	for _, e := range all {
		list = append(list, e.name)
	}
	return strings.Join(list, " ")
}

// on lets the run make a step and waits until it has.
func (s *site) on(id string) {
	s.Helper()
	s.call("POST", "/v1/runs/"+id+"/signal/on", "").want(202)
	time.Sleep(time.Second)
}

func TestEvents(t *testing.T) {
	inBubble(t, func(s *site) {
		s.work(stages)
		s.call("POST", "/v1/runs", `{"workflow":"stages","input":3,"id":"r"}`, "Prefer: wait=1")
		l := s.listen("/v1/runs/r/events")
		if h := l.resp.Header; h.Get("Content-Type") != "text/event-stream" || h.Get("Cache-Control") != "no-cache, no-transform" || h.Get("X-Accel-Buffering") != "no" {
			t.Errorf("%v", h)
		}
		first := l.next()
		if first.name != "snapshot" || first.run(s.T).State != "waiting" || first.id != strconv.FormatInt(first.run(s.T).Version, 10) {
			t.Errorf("%+v", first)
		}
		if d, err := strconv.Atoi(l.retry); err != nil || d < 2500 || d > 3500 {
			t.Errorf("retry %q", l.retry)
		}
		s.on("r")
		s.on("r")
		s.on("r")
		all := l.upTo("end")
		if e := l.next(); e.name != "" {
			t.Errorf("after the end: %+v", e)
		}
		seq := int64(0)
		steps := 0
		for _, e := range all {
			id, err := strconv.ParseInt(e.id, 10, 64)
			if err != nil || id < seq {
				t.Errorf("id %s after %d", e.id, seq)
			}
			seq = id
			if e.name == "message" && strings.Contains(e.data, `"kind":"step"`) {
				steps++
			}
		}
		if steps != 3 || !strings.Contains(names(all), "state") {
			t.Errorf("%d steps: %s", steps, names(all))
		}
		last := all[len(all)-1]
		if r := last.run(s.T); r.State != "succeeded" || r.Progress.Percent != 100 || string(r.Result) != "3" {
			t.Errorf("%+v", r)
		}

		// Whoever comes again is told what is missing, from wherever it is.
		for i, e := range all {
			again := s.listen("/v1/runs/r/events", "Last-Event-ID: "+e.id)
			if i == len(all)-1 {
				if again.resp.StatusCode != 204 {
					t.Errorf("after the end: %d", again.resp.StatusCode)
				}
				break
			}
			rest := again.upTo("end")
			if names(rest) == "" || rest[0].name == "snapshot" || rest[len(rest)-1].id != last.id {
				t.Errorf("after %+v: %s", e, names(rest))
			}
			for _, m := range rest[:len(rest)-1] {
				if id, _ := strconv.ParseInt(m.id, 10, 64); m.name == "message" && strconv.FormatInt(id, 10) <= e.id && len(m.id) <= len(e.id) {
					t.Errorf("told again after %s: %+v", e.id, m)
				}
			}
		}
		if l := s.listen("/v1/runs/r/events?last_event_id=" + last.id); l.resp.StatusCode != 204 {
			t.Errorf("by the query: %d", l.resp.StatusCode)
		}
		if got := names(s.listen("/v1/runs/r/events").upTo("end")); got != "snapshot end" {
			t.Errorf("a late reader: %s", got)
		}
		if e := s.listen("/v1/runs/r/events", "Last-Event-ID: 999999999").next(); e.name != "snapshot" || !e.run(s.T).Gap {
			t.Errorf("an id of another store: %+v", e)
		}
		s.call("GET", "/v1/runs/r/events", "", "Accept: text/event-stream", "Last-Event-ID: x").refused(400, "invalid-input")
		s.call("HEAD", "/v1/runs/r/events", "", "Accept: text/event-stream").want(200)

		var page struct {
			Events []message
			Next   *int64 `json:"next_after"`
		}
		s.call("GET", "/v1/runs/r/events?limit=2", "").into(&page)
		if len(page.Events) != 2 || page.Next == nil || *page.Next != page.Events[1].Seq {
			t.Errorf("%+v", page)
		}
		s.call("GET", fmt.Sprintf("/v1/runs/r/events?after=%d", *page.Next), "").into(&page)
		if len(page.Events) != 4 || page.Next != nil {
			t.Errorf("%+v", page)
		}
		s.call("GET", "/v1/runs/r/history?limit=6", "").want(200, `"data":"done\nwith it"`, `"next_after":`)
		s.call("GET", "/v1/runs/r/history?after=999999", "").want(200, `{"records":[],"next_after":null}`)
		for _, q := range []string{"after=-1", "after=x", "limit=0", "limit=1001"} {
			s.call("GET", "/v1/runs/r/history?"+q, "").refused(400, "invalid-input")
			s.call("GET", "/v1/runs/r/events?"+q, "").refused(400, "invalid-input")
			s.call("GET", "/v1/runs/r/stream?"+q, "").refused(400, "invalid-input")
		}
	})
}

// A stream that has nothing to tell shows that it lives.
func TestEventsBeat(t *testing.T) {
	inBubble(t, func(s *site) {
		s.call("POST", "/v1/runs", `{"workflow":"stages","id":"r"}`)
		l := s.listen("/v1/runs/r/events")
		l.next()
		before := l.beats
		s.after(5*time.Minute+time.Second, func() { s.call("POST", "/v1/runs/r/terminate", "").want(200) })
		l.upTo("end")
		if n := l.beats - before; n < 20 || n > 45 {
			t.Errorf("%d comments in five minutes", n)
		}
	})
}

// A reader that does not read is let go of, and holds nobody else up.
func TestSlowReader(t *testing.T) {
	inBubble(t, func(s *site) {
		s.work(stages)
		s.call("POST", "/v1/runs", `{"workflow":"stages","input":60,"id":"r"}`, "Prefer: wait=1")
		slow := s.listen("/v1/runs/r/events")
		quick := s.listen("/v1/runs/r/events")
		go func() {
			for range 60 {
				s.on("r")
			}
		}()
		steps := 0
		for _, e := range quick.upTo("end") {
			if e.name == "message" && strings.Contains(e.data, `"kind":"step"`) {
				steps++
			}
		}
		if steps != 60 {
			t.Errorf("%d steps", steps)
		}
		for e := slow.next(); e.name != ""; e = slow.next() {
			if e.name == "end" {
				t.Error("a reader that has not read for minutes is served to the end")
			}
		}
	})
}

// A run that begins anew has forgotten what it was: the reader begins anew too.
func TestEventsAfterContinue(t *testing.T) {
	inBubble(t, func(s *site) {
		again := bide.Define("again", func(ctx bide.Context, n int) (int, error) {
			_, err := bide.Receive[any](ctx, "on")
			if err == nil && n > 1 {
				return 0, bide.ContinueAsNew(ctx, n-1)
			}
			return n, err
		})
		s.work(again)
		s.call("POST", "/v1/runs", `{"workflow":"again","input":3,"id":"r"}`, "Prefer: wait=1")
		l := s.listen("/v1/runs/r/events")
		first := l.next()
		s.on("r")
		e := l.next()
		for ; e.name == "state"; e = l.next() { // it was taken up
		}
		if e.name != "snapshot" || !e.run(s.T).Gap {
			t.Errorf("%+v", e)
		}
		if e := s.listen("/v1/runs/r/events", "Last-Event-ID: "+first.id).next(); e.name != "snapshot" || !e.run(s.T).Gap {
			t.Errorf("%+v", e)
		}
		s.on("r")
		s.on("r")
		if e := l.upTo("end"); e[len(e)-1].run(s.T).State != "succeeded" {
			t.Errorf("%+v", e)
		}
	})
}

// Progress alone is a small event.
func TestProgressEvent(t *testing.T) {
	inBubble(t, func(s *site) {
		slow := bide.Define("slow", func(ctx bide.Context, _ any) (any, error) {
			return nil, bide.Do(ctx, "work", func(ctx context.Context) error {
				for i := range 5 {
					_ = bide.Progress(ctx, float64(20*i), "working")
					time.Sleep(10 * time.Second)
				}
				return nil
			})
		})
		s.work(slow)
		s.call("POST", "/v1/runs", `{"workflow":"slow","id":"r"}`, "Prefer: wait=1")
		l := s.listen("/v1/runs/r/events")
		all := l.upTo("end")
		got := 0
		for _, e := range all {
			if e.name == "progress" {
				got++
			}
		}
		if got != 4 {
			t.Errorf("%s", names(all))
		}
	})
}

func TestEventsOfSeveral(t *testing.T) {
	inBubble(t, func(s *site) {
		s.work(stages)
		for _, id := range []string{"a", "b"} {
			s.call("POST", "/v1/runs", `{"workflow":"stages","input":1,"id":"`+id+`"}`, "Prefer: wait=1")
		}
		l := s.listen("/v1/events?runs=b,a,none,a")
		if all := l.upTo("snapshot"); all[0] != (event{"", "gone", `{"run":"none"}`}) || all[1].run(s.T).ID != "a" {
			t.Errorf("%+v", all)
		}
		if e := l.next(); e.name != "snapshot" || e.run(s.T).ID != "b" || e.id != "" {
			t.Errorf("%+v", e)
		}
		s.on("b")
		all := l.upTo("end")
		for _, e := range all {
			if !strings.Contains(e.data, `"b"`) {
				t.Errorf("%+v", e)
			}
		}
		s.on("a")
		l.upTo("end")
		if e := l.next(); e != (event{"end", "done", "{}"}) {
			t.Errorf("%+v", e)
		}
		if e := l.next(); e.name != "" {
			t.Errorf("%+v", e)
		}
		if l := s.listen("/v1/events?runs=a,b", "Last-Event-ID: end"); l.resp.StatusCode != 204 {
			t.Errorf("all are told: %d", l.resp.StatusCode)
		}
		if got := names(s.listen("/v1/events?runs=a,b").upTo("done")); got != "snapshot end snapshot end done" {
			t.Error(got)
		}
		s.call("POST", "/v1/runs", `{"workflow":"nobody","id":"c"}`)
		l = s.listen("/v1/events?runs=c,a")
		l.next()
		l.next()
		l.next()
		s.call("POST", "/v1/runs/c/terminate", "")
		l.upTo("done")
		s.call("GET", "/v1/events?runs=", "", "Accept: text/event-stream").refused(400, "invalid-input")
		s.call("GET", "/v1/events?runs="+strings.Repeat("a,", 101)+strings.Join(strings.Split(strings.Repeat("x", 200), ""), "1,"), "", "Accept: text/event-stream").want(200)
		many := []string{}
		for i := range 101 {
			many = append(many, strconv.Itoa(i))
		}
		s.call("GET", "/v1/events?runs="+strings.Join(many, ","), "", "Accept: text/event-stream").refused(400, "invalid-input")
		s.call("GET", "/v1/events?runs="+strings.Join(many, "&runs="), "", "Accept: text/event-stream").refused(400, "invalid-input")
		s.call("GET", "/v1/events", "").refused(406, "not-acceptable")
		s.call("HEAD", "/v1/events", "", "Accept: text/event-stream").want(200)
	})
}

// Whatever stands in an id, its run can be named beside others.
func TestEventsOfAnyID(t *testing.T) {
	inBubble(t, func(s *site) {
		for _, id := range []string{"x,y", "x", "y", "a&b=ü"} {
			s.call("POST", "/v1/runs", `{"workflow":"nobody","id":"`+id+`"}`).want(202)
		}
		for query, want := range map[string]string{
			"runs=x,y":                              "x y",
			"runs=x%2Cy":                            "x y",
			"runs=x,y&runs=x":                       "x x,y",
			"runs=x,y&runs=x,y":                     "x,y",
			"runs=x%2Cy&runs=":                      "x,y",
			"runs=a%26b%3D%C3%BC&runs=x%2Cy&runs=y": "a&b=ü x,y y",
		} {
			l := s.listen("/v1/events?" + query)
			got := []string{}
			for range strings.FieldsSeq(want) {
				got = append(got, l.next().run(s.T).ID)
			}
			if strings.Join(got, " ") != want {
				t.Errorf("%s tells of %q, want %s", query, got, want)
			}
		}
	})
}

// A purged run's stream ends.
func TestEventsOfPurged(t *testing.T) {
	inBubble(t, func(s *site) {
		c := &counted{Store: s.store}
		lost := false
		c.after = func(err error) error {
			if lost {
				return bide.ErrNotFound
			}
			return err
		}
		shared := serve(s.T, c, Config{})
		s.call("POST", "/v1/runs", `{"workflow":"nobody","id":"a"}`)
		one, several := shared.listen("/v1/runs/a/events"), shared.listen("/v1/events?runs=a")
		one.next()
		several.next()
		synctest.Wait()
		lost = true
		s.call("POST", "/v1/runs/a/signal/x", "")
		s.call("POST", "/v1/runs/a/pause", "")
		if e := one.next(); e.name != "" {
			t.Errorf("%+v", e)
		}
		if got := names(several.upTo("done")); got != "gone done" {
			t.Error(got)
		}
	})
}

func TestHints(t *testing.T) {
	inBubble(t, func(s *site) {
		l := s.listen("/v1/events")
		began := time.Now()
		go func() {
			for range 50 {
				s.call("POST", "/v1/runs", `{"workflow":"nobody"}`).want(202)
				time.Sleep(100 * time.Millisecond)
			}
			time.Sleep(10 * time.Second)
			s.h.Close()
		}()
		hints := 0
		for e := l.next(); e.name != ""; e = l.next() {
			if e.name == "changed" {
				hints++
			}
		}
		if hints < 5 || hints > 7 {
			t.Errorf("%d hints in %v", hints, time.Since(began))
		}
	})
}

// Hints come beside runs on one stream, which goes on when these have ended.
func TestHintsBesideRuns(t *testing.T) {
	inBubble(t, func(s *site) {
		s.call("POST", "/v1/runs", `{"workflow":"nobody","id":"a"}`).want(202)
		l := s.listen("/v1/events?runs=a&runs=none&changes=true")
		if got := names([]event{l.next(), l.next()}); got != "gone snapshot" {
			t.Error(got)
		}
		s.call("POST", "/v1/runs", `{"workflow":"nobody","id":"b"}`).want(202)
		if e := l.next(); e != (event{"", "changed", "{}"}) {
			t.Errorf("%+v", e)
		}
		go func() {
			s.call("POST", "/v1/runs/a/terminate", "").want(200)
			time.Sleep(3 * hintEvery)
			for range 5 {
				s.call("POST", "/v1/runs", `{"workflow":"nobody"}`).want(202)
				time.Sleep(hintEvery / 10)
			}
			time.Sleep(3 * hintEvery)
			s.h.Close()
		}()
		all := names(l.upTo("closing")) // of the end, within a second of the first; and two of the five
		if !strings.HasPrefix(all, "end ") || !strings.HasSuffix(all, " closing") || strings.Count(all, " changed") != 3 {
			t.Error(all)
		}
		for query, status := range map[string]int{"runs=a&changes=false": 204, "runs=a&changes=true": 200, "changes=true": 200, "changes=x": 400, "changes=false": 400} {
			if l := serve(s.T, s.store, Config{}).listen("/v1/events?"+query, "Last-Event-ID: end"); l.resp.StatusCode != status {
				t.Errorf("%s: %d", query, l.resp.StatusCode)
			}
		}
	})
}

// A change and its reverse between two reads are told too: who has read the run
// elsewhere meanwhile has seen the one, and would stay with it.
func TestEventsOfThereAndBack(t *testing.T) {
	inBubble(t, func(s *site) {
		s.call("POST", "/v1/runs", `{"workflow":"nobody","id":"r"}`).want(202)
		s.call("POST", "/v1/runs/r/pause", "").want(202)
		l := s.listen("/v1/runs/r/events")
		if first := l.next(); first.run(s.T).State != "paused" {
			t.Fatalf("%+v", first)
		}
		time.Sleep(time.Second)
		client := bide.NewClient(s.store) // past the handler, so that it sees both at once
		if err := client.Resume(context.Background(), "r"); err != nil {
			t.Fatal(err)
		}
		if err := client.Pause(context.Background(), "r"); err != nil {
			t.Fatal(err)
		}
		run, err := client.Get(context.Background(), "r")
		if err != nil {
			t.Fatal(err)
		}
		for e := l.next(); e.id != strconv.FormatInt(run.Version, 10); e = l.next() {
			if e.name == "" {
				t.Fatal("the stream has ended")
			}
		}
	})
}
