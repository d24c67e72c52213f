package main

import (
	"context"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/sqlite"
)

// The README's program is this one, to the letter, and does what it says: the
// step runs once though the worker is stopped while the run sleeps.
func TestGreet(t *testing.T) {
	program, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, code, _ := strings.Cut(string(program), "\npackage main\n")
	if !strings.Contains(string(readme), strings.TrimSpace(code)) {
		t.Error("the README shows another program than examples/greet/main.go")
	}
	synctest.Test(t, func(t *testing.T) {
		store, err := sqlite.Open(":memory:")
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		work := func(d time.Duration) {
			ctx, cancel := context.WithTimeout(t.Context(), d)
			defer cancel()
			worker := bide.NewWorker(store, bide.WorkerConfig{})
			worker.Register(Greet)
			if err := worker.Run(ctx); err != nil {
				t.Error(err)
			}
		}
		client := bide.NewClient(store)
		run, err := Greet.Start(t.Context(), client, "world", bide.ID("greet-world"))
		if err != nil {
			t.Fatal(err)
		}
		work(time.Second)
		time.Sleep(time.Hour)
		work(time.Second)
		text, err := run.Result(t.Context())
		if text != "hello world" || err != nil {
			t.Errorf("got %q, %v", text, err)
		}
		records, err := client.History(t.Context(), run.ID(), 0)
		if err != nil || len(records) != 2 {
			t.Errorf("the history is %v, %v; want the step and the sleep", records, err)
		}
	})
}
