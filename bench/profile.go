package main

import (
	"os"
	"runtime"
	"runtime/pprof"
)

// profile starts the profiles that were asked for; stop writes them.
func (b *bench) profile() (stop func() error, err error) {
	var cpu *os.File
	if b.cpuProfile != "" {
		if cpu, err = os.Create(b.cpuProfile); err != nil {
			return nil, err
		}
		if err := pprof.StartCPUProfile(cpu); err != nil {
			return nil, err
		}
	}
	if b.blockProfile != "" {
		runtime.SetBlockProfileRate(10_000) // about one sample for 10 µs blocked
	}
	return func() error {
		if cpu != nil {
			pprof.StopCPUProfile()
			if err := cpu.Close(); err != nil {
				return err
			}
		}
		if err := writeProfile("allocs", b.memProfile); err != nil {
			return err
		}
		return writeProfile("block", b.blockProfile)
	}, nil
}

func writeProfile(name, path string) error {
	if path == "" {
		return nil
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := pprof.Lookup(name).WriteTo(f, 0); err != nil {
		return err
	}
	return f.Close()
}
