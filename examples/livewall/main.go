// Livewall is a page of four loops of different kinds, each of which asks a service as
// often as it makes sense: weather that fails at times, news that take long, stocks,
// notifications. The loops run in the browser: they rest while nobody looks, and what
// is overdue then comes 150 ms apart when somebody does.
//
//	go run ./examples/livewall             then open http://127.0.0.1:7081
//
// Put the page behind another tab for a while and come back; hold the network in the
// browser's tools; watch weather back off, and reset it. Loops that run on a server,
// and outlive it, are in examples/loops.
//
// Needs nothing else: the page is in dist, built from web. Read web/src/main.ts first,
// then web/src/card.ts; service.go is the world.
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
)

func main() {
	addr := flag.String("addr", "127.0.0.1:7081", "where to listen")
	slow := flag.Duration("slow", 2*time.Second, "how long the news take")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	context.AfterFunc(ctx, stop) // a second Ctrl-C kills
	if err := run(ctx, *addr, *slow); err != nil {
		fmt.Fprintln(os.Stderr, "livewall:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, addr string, slow time.Duration) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: newHandler(slow), ReadHeaderTimeout: 5 * time.Second}
	context.AfterFunc(ctx, func() { _ = server.Close() }) // nothing here is worth waiting for
	fmt.Println("The wall is at http://" + l.Addr().String())
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// newHandler is the page and what it asks.
func newHandler(slow time.Duration) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /{$}", page())
	mux.Handle("GET /{file}", page())
	mux.Handle("/api/", newService(slow))
	return mux
}
