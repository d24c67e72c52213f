package server_test

import (
	"context"
	"log"
	"net/http"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/server"
	"github.com/bide-dev/bide/sqlite"
)

// A server of its own, on http://127.0.0.1:7433.
func Example() {
	store, err := sqlite.Open("bide.db")
	if err != nil {
		log.Fatal(err)
	}
	srv, err := server.New(store, server.Config{})
	if err != nil {
		log.Fatal(err)
	}
	worker := bide.NewWorker(srv.Store(), bide.WorkerConfig{})
	worker.Register(greet)
	go worker.Run(context.Background())
	log.Fatal(srv.Run(context.Background()))
}

// A program that serves other things too.
func ExampleServer_ServeHTTP() {
	store, err := sqlite.Open("bide.db")
	if err != nil {
		log.Fatal(err)
	}
	srv, err := server.New(store, server.Config{Prefix: "/bide", Hosts: []string{"app.example.com"}})
	if err != nil {
		log.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/bide/", srv)
	program := &http.Server{Addr: ":8080", Handler: mux}
	program.RegisterOnShutdown(srv.Close)
	log.Fatal(program.ListenAndServe())
}
