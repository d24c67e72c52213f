package remote_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/remote"
	"github.com/bide-dev/bide/sqlite"
)

// A server is a handler on a store; the rest is net/http's.
func ExampleNewHandler() {
	store, err := sqlite.Open(":memory:")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close()
	listener, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	mux := http.NewServeMux()
	mux.Handle(remote.NewHandler(store))
	srv := &http.Server{Handler: mux}
	time.AfterFunc(10*time.Millisecond, func() { _ = srv.Close() }) // of this example only
	fmt.Println(srv.Serve(listener))
	// Output: http: Server closed
}

// A program that works on a file works on a server when it dials.
func ExampleDial() {
	url, stop := exampleServer()
	defer stop()

	store, err := remote.Dial(url) // was: sqlite.Open("bide.db")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close()
	greet := bide.Define("greet", func(ctx bide.Context, name string) (string, error) {
		return bide.Step(ctx, "say", func(context.Context) (string, error) { return "Hello, " + name, nil })
	})
	worker := bide.NewWorker(store, bide.WorkerConfig{})
	worker.Register(greet)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := make(chan error)
	go func() { done <- worker.Run(ctx) }()

	run, err := greet.Start(ctx, bide.NewClient(store), "Ada")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(run.Result(ctx))
	cancel()
	fmt.Println(<-done)
	// Output:
	// Hello, Ada <nil>
	// <nil>
}

// A server that asks who is there wants a token.
func ExampleToken() {
	store, err := remote.Dial("https://bide.example.com", remote.Token("bide_0123456789"))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(store.Close())
	// Output: <nil>
}

// A server whose certificate is its own wants a client that trusts it.
func ExampleHTTPClient() {
	inner, err := sqlite.Open(":memory:")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer inner.Close()
	srv := httptest.NewUnstartedServer(muxOf(remote.NewHandler(inner)))
	srv.EnableHTTP2 = true
	srv.StartTLS()
	defer srv.Close()

	store, err := remote.Dial(srv.URL, remote.HTTPClient(srv.Client()))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close()
	runs, err := store.Runs(context.Background(), bide.Query{})
	fmt.Println(len(runs), err)
	// Output: 0 <nil>
}

func exampleServer() (url string, stop func()) {
	store, err := sqlite.Open(":memory:")
	if err != nil {
		panic(err)
	}
	srv := httptest.NewServer(muxOf(remote.NewHandler(store)))
	return srv.URL, func() {
		srv.Close()
		_ = store.Close()
	}
}
