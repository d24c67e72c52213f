package api

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/bide-dev/bide"
)

// story streams ten words, 100 ms apart; its first attempt breaks off in the middle.
var story = bide.Define("story", func(ctx bide.Context, _ any) (any, error) {
	attempt := 0
	return nil, bide.Do(ctx, "tell", func(ctx context.Context) error {
		attempt++
		out := bide.Stream(ctx)
		for i := range 10 {
			fmt.Fprintf(out, "%d.%d ", attempt, i)
			time.Sleep(100 * time.Millisecond)
			if attempt == 1 && i == 4 {
				return errors.New("broken off")
			}
		}
		_, err := out.Write([]byte{0xff, 0xfe, 'x'})
		return err
	})
})

func TestStream(t *testing.T) {
	inBubble(t, func(s *site) {
		s.work(story)
		s.call("POST", "/v1/runs", `{"workflow":"story","id":"r"}`)
		l, second := s.listen("/v1/runs/r/stream"), s.listen("/v1/runs/r/stream")
		all := l.upTo("end")
		if got, want := fmt.Sprint(second.upTo("end")), fmt.Sprint(all); got != want {
			t.Errorf("two readers are told otherwise:\n%s\n%s", got, want)
		}
		told := func(all []event) string {
			var b strings.Builder
			for _, e := range all {
				switch e.name {
				case "segment":
					b.WriteString("| ")
				case "chunk":
					_, text, _ := strings.Cut(e.data, `"text":"`)
					text, _, _ = strings.Cut(text, `"`)
					b.WriteString(text)
					if strings.Contains(e.data, `"data":"//54"`) {
						b.WriteString("(raw)")
					}
				}
			}
			return b.String()
		}
		const whole = "| 1.0 1.1 1.2 1.3 1.4 | 2.0 2.1 2.2 2.3 2.4 2.5 2.6 2.7 2.8 2.9 (raw)"
		if got := told(all); got != whole {
			t.Errorf("%s\n%v", got, all)
		}
		if last := all[len(all)-1]; last.data != `{"state":"succeeded"}` {
			t.Errorf("%+v", last)
		}
		// From wherever a reader comes again, nothing is missing and nothing told twice.
		seen := ""
		for i, e := range all {
			if e.name == "segment" {
				seen += "| "
				continue
			}
			seen = told(all[:i+1])
			again := s.listen("/v1/runs/r/stream", "Last-Event-ID: "+e.id)
			if e.name == "end" {
				if again.resp.StatusCode != 204 {
					t.Errorf("after the end: %d", again.resp.StatusCode)
				}
				break
			}
			if got := seen + told(again.upTo("end")); got != whole {
				t.Errorf("after %s: %s", e.id, got)
			}
		}
		var page struct {
			Chunks []chunkView
			Next   *int64 `json:"next_after"`
		}
		s.call("GET", "/v1/runs/r/stream?limit=3", "").into(&page)
		if len(page.Chunks) != 3 || page.Next == nil || *page.Chunks[0].Text != "1.0 " {
			t.Errorf("%+v", page)
		}
		s.call("GET", fmt.Sprintf("/v1/runs/r/stream?after=%d", *page.Next), "").want(200, `"data":"//54"`)
		s.call("HEAD", "/v1/runs/r/stream", "", "Accept: text/event-stream").want(200)
		s.call("GET", "/v1/runs/r/stream", "", "Accept: text/event-stream", "Last-Event-ID: -5").refused(400, "invalid-input")
	})
}

// A long stream is told whole, however late its readers come and however slow.
func TestLongStream(t *testing.T) {
	inBubble(t, func(s *site) {
		const words = 900
		long := bide.Define("long", func(ctx bide.Context, _ any) (any, error) {
			return nil, bide.Do(ctx, "tell", func(ctx context.Context) error {
				out := bide.Stream(ctx)
				for i := range words {
					fmt.Fprintf(out, "%d,", i)
					time.Sleep(60 * time.Millisecond)
				}
				return nil
			})
		})
		s.work(long)
		s.call("POST", "/v1/runs", `{"workflow":"long","id":"r"}`)
		early := s.listen("/v1/runs/r/stream")
		done := make(chan string)
		read := func(l *listener) {
			var b strings.Builder
			seq := int64(0)
			for _, e := range l.upTo("end") {
				if n, err := strconv.ParseInt(e.id, 10, 64); e.name == "chunk" {
					if err != nil || n <= seq {
						t.Errorf("id %s after %d", e.id, seq)
					}
					seq = n
					_, text, _ := strings.Cut(e.data, `"text":"`)
					text, _, _ = strings.Cut(text, `"`)
					b.WriteString(text)
				}
			}
			done <- b.String()
		}
		go read(early)
		time.Sleep(10 * time.Second)
		go read(s.listen("/v1/runs/r/stream"))
		time.Sleep(35 * time.Second)
		go read(s.listen("/v1/runs/r/stream"))
		first := <-done
		if n := strings.Count(first, ","); n != words {
			t.Errorf("%d words", n)
		}
		for range 2 {
			if <-done != first {
				t.Error("readers are told otherwise")
			}
		}
	})
}
