//go:build unix

package main

import (
	"os"
	"syscall"
)

// canStop says that a process can be stopped and sent on its way again.
const canStop = true

func stop(p *os.Process) error { return p.Signal(syscall.SIGSTOP) }
func cont(p *os.Process) error { return p.Signal(syscall.SIGCONT) }
