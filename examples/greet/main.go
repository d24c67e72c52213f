// Greet is the program of the README: run it, kill it while it sleeps, run it
// again.
package main

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/sqlite"
)

var Greet = bide.Define("greet", func(ctx bide.Context, name string) (string, error) {
	text, err := bide.Step(ctx, "write", func(context.Context) (string, error) {
		fmt.Println("writing, once")
		return "hello " + name, nil
	})
	if err != nil {
		return "", err
	}
	err = bide.Sleep(ctx, 10*time.Second) // kill the program here
	return text, err
})

func main() {
	store, err := sqlite.Open("greet.db")
	if err != nil {
		log.Fatal(err)
	}
	worker := bide.NewWorker(store, bide.WorkerConfig{})
	worker.Register(Greet)
	ctx := context.Background()
	go func() { log.Fatal(worker.Run(ctx)) }()
	run, err := Greet.Start(ctx, bide.NewClient(store), "world", bide.ID("greet-world"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(run.Result(ctx))
}
