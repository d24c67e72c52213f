// Storygen is a service that writes stories: a page asks for one, follows it chapter
// by chapter and word by word, and can cancel it, which really stops the writing.
//
//	go run ./examples/storygen             then open http://127.0.0.1:7080
//
// Or without a browser:
//
//	curl -i localhost:7080/stories -d '{"project":"owl","chapters":3}'
//	curl -N localhost:7080/v1/runs/RUN/stream -H 'Accept: text/event-stream'
//	curl -X DELETE localhost:7080/v1/runs/RUN
//	curl localhost:7080/model                                               whether it still writes
//	curl -i localhost:7080/stories -d '{"project":"fox","chapters":3}'      400: fox has no outline
//
// Kill it at any moment (kill -9) and give the same command again: the stories go on
// with the chapter they were at. Needs nothing else: the page is in dist, built from web.
// Read story.go first, then http.go, then web/src/story.tsx.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"time"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/api"
	"github.com/bide-dev/bide/sqlite"
)

func main() {
	db := flag.String("db", "storygen.db", "the file that keeps the runs")
	addr := flag.String("addr", "127.0.0.1:7080", "where to listen")
	perWord := flag.Duration("word", 40*time.Millisecond, "how long the model takes for a word")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	context.AfterFunc(ctx, stop) // a second Ctrl-C kills
	if err := run(ctx, *db, *addr, *perWord); err != nil {
		fmt.Fprintln(os.Stderr, "storygen:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, db, addr string, perWord time.Duration) error {
	store, err := sqlite.Open(db)
	if err != nil {
		return err
	}
	defer store.Close()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	m := &model{perWord: perWord}
	workflow := newWorkflow(projects{"owl": {Outline: "an owl that waits for the moon"}, "fox": {}}, m)
	worker := bide.NewWorker(store, bide.WorkerConfig{})
	worker.Register(workflow)
	bideAPI := api.NewHandler(store, api.Config{})
	server := &http.Server{Handler: newHandler(bide.NewClient(store), workflow, m, bideAPI), ReadHeaderTimeout: 5 * time.Second}
	server.RegisterOnShutdown(bideAPI.Close)

	fmt.Println("Stories are written at http://" + l.Addr().String())
	return worker.While(ctx, func(ctx context.Context) error {
		stop := context.AfterFunc(ctx, func() {
			grace, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			defer cancel()
			_ = server.Shutdown(grace)
		})
		defer stop()
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
}
