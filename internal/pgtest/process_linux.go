package pgtest

import (
	"os/exec"
	"runtime"
	"syscall"
)

// interrupt asks a server for a fast shutdown.
const interrupt = syscall.SIGINT

// quit asks a server for an immediate one.
const quit = syscall.SIGQUIT

// become has the command run as the account, and end with this process.
func (a account) become(c *exec.Cmd) {
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGQUIT}
	if a.uid != 0 {
		c.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(a.uid), Gid: uint32(a.gid)}
	}
}

// run starts the command and waits for its end, on a thread of its own: the kernel
// takes the end of the thread that started it for the end of its parent.
func run(c *exec.Cmd, started chan<- error, end chan<- struct{}) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := c.Start()
	started <- err
	if err == nil {
		_ = c.Wait()
	}
	close(end)
}
