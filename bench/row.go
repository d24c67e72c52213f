package main

import (
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
	"time"
)

// row is one line of output.
type row struct {
	Workload string  `json:"workload"`
	What     string  `json:"what,omitempty"` // list: which page, or the counts
	Store    string  `json:"store"`
	N        int     `json:"n"`
	Inflight int     `json:"inflight"`
	Value    float64 `json:"value"`
	Unit     string  `json:"unit"`
	P50      float64 `json:"p50_ms"`
	P99      float64 `json:"p99_ms"`
	RSS      int64   `json:"rss_bytes"`
	Peak     int64   `json:"peak_rss_bytes"`
	DB       int64   `json:"db_bytes"`
	// Ratio is to the limit (steps), to an empty file (finished), or to a short
	// history (checks).
	Ratio float64 `json:"ratio,omitempty"`
	// Most is what Value should be at most.
	Most float64 `json:"most_ms,omitempty"`
	// PerRun is the disk that a run takes.
	PerRun float64 `json:"db_bytes_per_run,omitempty"`
	// Count is of iterations or checks, PerWait the memory of a loop or poll between
	// two of them.
	Count   int     `json:"count,omitempty"`
	PerWait float64 `json:"memory_bytes_per_wait,omitempty"`
	usage
}

// usage is what a phase took of the processors.
type usage struct {
	CPU float64 `json:"cpu_s"`
	// Others is the share of the machine that other processes took meanwhile:
	// where it is much above 0, the absolute figures are too low.
	Others float64 `json:"others_share"`
}

// print completes the row with what the process and the file take, and writes it.
func (b *bench) print(r row, d *door) error {
	if r.Workload == "" {
		r.Workload = b.workload
	}
	r.Store = b.store
	runtime.GC()
	debug.FreeOSMemory()
	r.RSS, r.Peak = memory()
	if d != nil {
		size, err := d.size()
		if err != nil {
			return err
		}
		r.DB = size
	}
	if b.json {
		line, err := json.Marshal(r)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(b.out, "%s\n", line)
		return err
	}
	var s strings.Builder
	name := r.Workload
	if r.What != "" {
		name += ", " + r.What
	}
	fmt.Fprintf(&s, "%-9s %-8s n=%-8d inflight=%-5d %12s %-7s", name, r.Store, r.N, r.Inflight, number(r.Value), r.Unit)
	if r.P50 > 0 {
		fmt.Fprintf(&s, " p50=%.3fms p99=%.3fms", r.P50, r.P99)
	}
	fmt.Fprintf(&s, " cpu=%.2fs others=%.0f%% rss=%.1fMB db=%.1fMB", r.CPU, 100*r.Others, float64(r.RSS)/1e6, float64(r.DB)/1e6)
	if r.Ratio > 0 {
		fmt.Fprintf(&s, " ratio=%.2f", r.Ratio)
	}
	if r.Count > 0 {
		fmt.Fprintf(&s, " count=%d %.0fB/wait", r.Count, r.PerWait)
	}
	if r.Most > 0 {
		fmt.Fprintf(&s, " most=%.0fms", r.Most)
	}
	if r.PerRun > 0 {
		fmt.Fprintf(&s, " %.0fB/run", r.PerRun)
	}
	_, err := fmt.Fprintln(b.out, s.String())
	return err
}

func number(v float64) string {
	if v >= 1000 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.3f", v)
}

// meter measures one phase.
type meter struct {
	began     time.Time
	cpu, busy time.Duration
}

func startMeter() meter { return meter{time.Now(), cpuTime(), busyTime()} }

func (m meter) wall() time.Duration { return time.Since(m.began) }

func (m meter) used() usage {
	cpu, busy := cpuTime()-m.cpu, busyTime()-m.busy
	all := m.wall() * time.Duration(runtime.NumCPU())
	return usage{cpu.Seconds(), min(max(float64(busy-cpu)/float64(all), 0), 1)}
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
