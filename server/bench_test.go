package server_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/remote"
	"github.com/bide-dev/bide/server"
)

// BenchmarkSteps measures runs of ten steps over a whole server, in a process of its
// own on this machine; the worker and the clients share this one.
func BenchmarkSteps(b *testing.B) {
	for _, inFlight := range []int{1, 100, 1000} {
		b.Run(fmt.Sprintf("inflight=%d", inFlight), func(b *testing.B) { bench(b, inFlight, stepsARun) })
	}
}

// BenchmarkRun measures start to result of a run of one step.
func BenchmarkRun(b *testing.B) { bench(b, 1, 1) }

func bench(b *testing.B, inFlight, steps int) {
	process, address := serving(b, filepath.Join(b.TempDir(), "bide.db"), "127.0.0.1:0")
	store, err := remote.Dial("http://" + address)
	if err != nil {
		b.Fatal(err)
	}
	work := chain(func(string, int) {})
	w := bide.NewWorker(store, bide.WorkerConfig{})
	w.Register(work)
	ctx, stop := context.WithCancel(context.Background())
	var worker sync.WaitGroup
	worker.Go(func() {
		if err := w.Run(ctx); err != nil {
			b.Error(err)
		}
	})
	client := bide.NewClient(store)
	var mu sync.Mutex
	var took []time.Duration
	run := func() {
		began := time.Now()
		h, err := work.Start(ctx, client, task{Steps: steps})
		if err == nil {
			_, err = h.Result(ctx)
		}
		if err != nil {
			b.Error(err)
			return
		}
		mu.Lock()
		took = append(took, time.Since(began))
		mu.Unlock()
	}
	for range 20 {
		run()
	}
	took = nil
	b.ResetTimer()
	var left atomic.Int64
	left.Store(int64(b.N))
	var callers sync.WaitGroup
	for range inFlight {
		callers.Go(func() {
			for left.Add(-1) >= 0 {
				run()
			}
		})
	}
	callers.Wait()
	b.StopTimer()
	stop()
	worker.Wait()
	if err := store.Close(); err != nil {
		b.Error(err)
	}
	kill(process)
	if len(took) == 0 {
		b.Fatal("nothing was done")
	}
	slices.Sort(took)
	used := process.ProcessState.UserTime() + process.ProcessState.SystemTime()
	b.ReportMetric(float64(b.N*steps)/b.Elapsed().Seconds(), "steps/s")
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
	b.ReportMetric(float64(used.Microseconds())/float64(b.N*steps), "server-µs/step")
}

// What the guards cost a request that carries a key.
func BenchmarkGuards(b *testing.B) {
	store := openStore(b)
	secret, _ := makeKey(b, store, server.ScopeRead)
	srv, err := server.New(store, server.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	r := httptest.NewRequestWithContext(local(b), http.MethodGet, "/openapi.yaml", nil)
	r.Host = "localhost"
	r.Header.Set("Authorization", "Bearer "+secret)
	for b.Loop() {
		w := &nowhere{header: http.Header{}}
		srv.ServeHTTP(w, r)
		if w.status != 200 {
			b.Fatal(w.status)
		}
	}
}

// nowhere keeps nothing of an answer but its status.
type nowhere struct {
	header http.Header
	status int
}

func (w *nowhere) Header() http.Header         { return w.header }
func (w *nowhere) Write(p []byte) (int, error) { return len(p), nil }
func (w *nowhere) WriteHeader(status int)      { w.status = status }
