package dashboard_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/sqlite"
)

// TestFixture writes the file that the browser tests look at: runs in every state,
// with what is hard to show. It runs only when BIDE_FIXTURE names the file.
func TestFixture(t *testing.T) {
	file := os.Getenv("BIDE_FIXTURE")
	if file == "" {
		t.Skip("BIDE_FIXTURE names no file to write")
	}
	store, err := sqlite.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	worker := bide.NewWorker(store, bide.WorkerConfig{GracePeriod: time.Second, Logger: slog.New(slog.DiscardHandler)})
	worker.Register(long, echo, failing, retrying, polling, parent, child, asleep)
	client := bide.NewClient(store)
	var runs []bide.NewRun
	for _, r := range []struct {
		id       string
		workflow *bide.Workflow[json.RawMessage, json.RawMessage]
		input    string
		labels   map[string]string
	}{
		{id: "fixture-long", workflow: long, input: "10000"},
		{id: "fixture-exact", workflow: echo, input: `{"order":9007199254740993,"price":1.10,"rate":0.1000000000000000055}`},
		{id: "fixture-large", workflow: echo, input: `["` + strings.Repeat(`a line of text, `, 64) + `"` + strings.Repeat(`,{"n":12345678901234567890,"s":"twenty characters..."}`, 35_000) + `]`},
		{id: "fixture-failed", workflow: failing, input: `1`, labels: map[string]string{"tenant": "acme"}},
		{id: "fixture-retry", workflow: retrying, input: `1`},
		{id: "fixture-poll", workflow: polling, input: `1`},
		{id: "fixture-parent", workflow: parent, input: `1`},
		{id: "fixture-sleep", workflow: asleep, input: `1`},
		{id: "fixture-paused", workflow: asleep, input: `2`},
		{id: "fixture-ended", workflow: asleep, input: `3`},
	} {
		runs = append(runs, bide.NewRun{ID: r.id, Workflow: r.workflow.Name(), Queue: "default", Input: json.RawMessage(r.input), Labels: r.labels})
	}
	for i := range 120 {
		labels := map[string]string{"tenant": []string{"acme", "globex"}[i%2], "n": fmt.Sprint(i)}
		runs = append(runs, bide.NewRun{ID: fmt.Sprintf("note-%03d", i), Workflow: "note", Queue: "nobody", Input: json.RawMessage("null"), Labels: labels})
	}
	created, err := store.Create(ctx, runs)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range created {
		if c.Err != nil {
			t.Fatal(c.Err)
		}
	}
	working, end := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- worker.Run(working) }()
	for id, parked := range map[string]func(bide.Run) bool{
		"fixture-long": over, "fixture-exact": over, "fixture-large": over, "fixture-failed": over, "fixture-retry": waits, "fixture-poll": polled,
		"fixture-parent": waits, "fixture-sleep": waits, "fixture-paused": waits, "fixture-ended": waits,
	} {
		for r, err := range client.Watch(ctx, id) {
			if err != nil {
				t.Fatal(err)
			}
			if parked(r) {
				break
			}
		}
	}
	if err := errors.Join(client.Pause(ctx, "fixture-paused"), client.Terminate(ctx, "fixture-ended", "enough of it")); err != nil {
		t.Fatal(err)
	}
	end()
	if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
}

func over(r bide.Run) bool { return r.State.Ended() }

func waits(r bide.Run) bool { return r.State == bide.Waiting && len(r.Waiting) > 0 }

// polled is after three errors in a row and an answer.
func polled(r bide.Run) bool { return waits(r) && r.Waiting[0].Attempt >= 4 }

// define is a workflow on JSON as it comes.
func define(name string, fn func(bide.Context, json.RawMessage) (json.RawMessage, error)) *bide.Workflow[json.RawMessage, json.RawMessage] {
	return bide.Define(name, fn)
}

var (
	long = define("long", func(ctx bide.Context, in json.RawMessage) (json.RawMessage, error) {
		var n int
		if err := json.Unmarshal(in, &n); err != nil {
			return nil, err
		}
		for i := range n {
			if _, err := bide.Step(ctx, fmt.Sprintf("part %d", i+1), func(context.Context) (string, error) { return "a result of some length", nil }); err != nil {
				return nil, err
			}
		}
		return in, nil
	})
	echo    = define("echo", func(_ bide.Context, in json.RawMessage) (json.RawMessage, error) { return in, nil })
	failing = define("failing", func(ctx bide.Context, _ json.RawMessage) (json.RawMessage, error) {
		return bide.Phase(ctx, "settle", func(ctx bide.Context) (json.RawMessage, error) {
			return bide.Step(ctx, "pay", func(context.Context) (json.RawMessage, error) {
				return nil, errors.New(`declined <img src=x onerror="document.title='broken into'">`)
			}, bide.RetryPolicy{InitialInterval: 300 * time.Millisecond, MaximumAttempts: 3, NoJitter: true})
		})
	})
	retrying = define("retrying", func(ctx bide.Context, _ json.RawMessage) (json.RawMessage, error) {
		return nil, bide.Do(ctx, "charge", func(context.Context) error { return errors.New("402: no funds") },
			bide.RetryPolicy{InitialInterval: time.Hour, NoJitter: true})
	})
	polling = define("polling", func(ctx bide.Context, _ json.RawMessage) (json.RawMessage, error) {
		n := 0
		return bide.Poll(ctx, "render", func(context.Context) (json.RawMessage, error) {
			if n++; n < 4 {
				return nil, errors.New("503 Service Unavailable")
			}
			return json.RawMessage(`{"state":"running","job":9007199254740993}`), nil
		}, func(json.RawMessage) bool { return false }, bide.Every(time.Second), bide.Timeout(240*time.Hour))
	})
	child = define("child", func(ctx bide.Context, _ json.RawMessage) (json.RawMessage, error) {
		return bide.Receive[json.RawMessage](ctx, "go on", bide.Timeout(72*time.Hour))
	})
	parent = define("parent", func(ctx bide.Context, in json.RawMessage) (json.RawMessage, error) {
		if err := bide.Publish(ctx, "total", json.RawMessage("12345678901234567890")); err != nil {
			return nil, err
		}
		bide.Progress(ctx, 33, "one of three", bide.AtStep{Index: 1, Count: 3, Name: "children"})
		var last *bide.ChildRun[json.RawMessage]
		for range 3 {
			c, err := bide.StartChild(ctx, child, in)
			if err != nil {
				return nil, err
			}
			last = c
		}
		return last.Result(ctx)
	})
	asleep = define("asleep", func(ctx bide.Context, in json.RawMessage) (json.RawMessage, error) {
		return in, bide.Sleep(ctx, 30*24*time.Hour)
	})
)
