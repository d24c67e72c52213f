// Bench measures bide's stores through the public API, and what the disk and the
// driver would allow without bide: see BENCHMARKS.md.
//
//	go run ./bench -store sqlite -workload steps
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
)

type config struct {
	store, workload, dir string
	n, inflight          int // 0: the workload's own
	ids                  string
	json, limit          bool
	cpuProfile           string
	memProfile           string
	blockProfile         string
}

// bench is what a workload is given.
type bench struct {
	config
	out    io.Writer
	errOut io.Writer
}

// lockedWriter is for several processes: each is copied by a goroutine of its own.
type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

// size is what -n says, or else the workload's own.
func (b *bench) size(d int) int {
	if b.n > 0 {
		return b.n
	}
	return d
}

// callers is what -inflight says, or else the workload's own.
func (b *bench) callers(d ...int) []int {
	if b.inflight > 0 {
		return []int{b.inflight}
	}
	return d
}

var workloads = map[string]func(context.Context, *bench) error{
	"steps":     runSteps,
	"latency":   runLatency,
	"chain":     runChain,
	"sleepers":  runSleepers,
	"wake":      runWake,
	"polls":     runPolls,
	"checks":    runChecks,
	"manypolls": runManyPolls,
	"loops":     runLoops,
	"idleloops": runIdleLoops,
	"crash":     runCrash,
	"limit":     runLimit,
	"finished":  runFinished,
	"pair":      runPair,
	"list":      runList,
	"resume":    runResume,
	"cadence":   runCadence,
}

// children are what the bench starts itself again as, in the directory of the parent.
var children = map[string]func(context.Context, *bench) error{crashChild: runCrashChild, pairChild: runPairChild}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out, errOut io.Writer) error {
	b := &bench{out: out, errOut: &lockedWriter{w: errOut}}
	names := append(slices.Sorted(maps.Keys(workloads)), "all")
	fs := flag.NewFlagSet("bench", flag.ContinueOnError)
	fs.SetOutput(errOut)
	fs.StringVar(&b.store, "store", "sqlite", "what to measure: "+strings.Join(slices.Sorted(maps.Keys(doors)), ", "))
	fs.StringVar(&b.workload, "workload", "steps", strings.Join(names, ", "))
	fs.IntVar(&b.n, "n", 0, "runs (resume: records, finished: finished runs in the file); 0: as the workload likes it")
	fs.IntVar(&b.inflight, "inflight", 0, "callers at once; 0: as the workload likes it")
	fs.StringVar(&b.ids, "ids", "", `"random" gives every run of sleepers a random id of the user's`)
	fs.BoolVar(&b.json, "json", false, "one JSON object a line")
	fs.BoolVar(&b.limit, "limit", true, "steps: measure the limit between the samples")
	fs.StringVar(&b.dir, "dir", ".", "where the temporary directory is made; on a real disk")
	fs.StringVar(&b.cpuProfile, "cpuprofile", "", "write a CPU profile here")
	fs.StringVar(&b.memProfile, "memprofile", "", "write a profile of all allocations here")
	fs.StringVar(&b.blockProfile, "blockprofile", "", "write a profile of blocked goroutines here")
	if err := fs.Parse(args); err != nil {
		return err
	}
	switch {
	case fs.NArg() > 0:
		return fmt.Errorf("unexpected argument %q", fs.Arg(0))
	case doors[b.store] == nil:
		return fmt.Errorf("-store %q is none of %v", b.store, slices.Sorted(maps.Keys(doors)))
	case !slices.Contains(names, b.workload) && children[b.workload] == nil:
		return fmt.Errorf("-workload %q is none of %v", b.workload, names)
	case b.n < 0 || b.inflight < 0:
		return errors.New("-n and -inflight must not be negative")
	case b.ids != "" && b.ids != "random":
		return fmt.Errorf(`-ids %q: only "random" is known`, b.ids)
	}
	if child := children[b.workload]; child != nil {
		return child(ctx, b)
	}
	dir, err := os.MkdirTemp(b.dir, ".bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if os.Getenv(postgresEnv) == "" {
		defer stopPostgres()
	}
	if inMemory(dir) {
		fmt.Fprintf(errOut, "bench: %s is kept in memory, where a sync costs nothing: give -dir a disk\n", b.dir)
	}
	b.dir = dir
	if b.workload == "all" {
		return runAll(ctx, b)
	}
	stop, err := b.profile()
	if err != nil {
		return err
	}
	return errors.Join(workloads[b.workload](ctx, b), stop())
}
