//go:build !linux

package pgtest

import (
	"os"
	"os/exec"
)

// interrupt asks a server for a fast shutdown.
var interrupt = os.Interrupt

// quit ends a server at once.
var quit = os.Kill

func (account) become(*exec.Cmd) {}

// run starts the command and waits for its end.
func run(c *exec.Cmd, started chan<- error, end chan<- struct{}) {
	err := c.Start()
	started <- err
	if err == nil {
		_ = c.Wait()
	}
	close(end)
}
