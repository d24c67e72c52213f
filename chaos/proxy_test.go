package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"time"
)

// echo is a server that sends back each line, behind a link.
func echo(t *testing.T) *link {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(func() { cancel(); _ = listener.Close() })
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(c, c); _ = c.Close() }()
		}
	}()
	l, err := newLink(ctx, "test", func() (string, string) { return "tcp", listener.Addr().String() })
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// caller is a connection through the link.
type caller struct {
	*testing.T
	net.Conn
	in *bufio.Reader
}

func dial(t *testing.T, l *link) *caller {
	t.Helper()
	c, err := net.Dial("tcp", l.address())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return &caller{t, c, bufio.NewReader(c)}
}

func (c *caller) say(line string) {
	c.Helper()
	if _, err := io.WriteString(c.Conn, line+"\n"); err != nil {
		c.Fatal(err)
	}
}

// hears waits for the line; silent makes sure for a while that there is none.
func (c *caller) hears(line string) {
	c.Helper()
	_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
	if got, err := c.in.ReadString('\n'); err != nil || got != line+"\n" {
		c.Fatalf("heard %q, %v, want %q", got, err, line)
	}
}

func (c *caller) silent() {
	c.Helper()
	_ = c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if got, err := c.in.ReadString('\n'); !errors.Is(err, context.DeadlineExceeded) && !isTimeout(err) {
		c.Fatalf("heard %q, %v, want silence", got, err)
	}
}

func isTimeout(err error) bool {
	var ne net.Error
	return errors.As(err, &ne) && ne.Timeout()
}

// What is held arrives in the end, whichever side it came from.
func TestLinkHolds(t *testing.T) {
	for _, m := range []mode{hold, half} {
		l := echo(t)
		c := dial(t, l)
		c.say("one")
		c.hears("one")
		l.set(m)
		c.say("two")
		late := dial(t, l)
		late.say("three")
		c.silent()
		late.silent()
		l.set(open)
		c.hears("two")
		late.hears("three")
	}
}

// A connection that has lost something stays silent for ever; new ones work.
func TestLinkLoses(t *testing.T) {
	l := echo(t)
	c := dial(t, l)
	c.say("one")
	c.hears("one")
	l.set(lose)
	c.say("two")
	during := dial(t, l)
	during.say("three")
	c.silent()
	l.set(open)
	c.say("four")
	c.silent()
	during.silent()
	after := dial(t, l)
	after.say("five")
	after.hears("five")
}

// A reset ends what is there and what comes; then all is well again.
func TestLinkResets(t *testing.T) {
	l := echo(t)
	c := dial(t, l)
	c.say("one")
	c.hears("one")
	l.set(reset)
	_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := c.in.ReadByte(); err == nil || isTimeout(err) {
		t.Errorf("after a reset: %v", err)
	}
	if during, err := net.Dial("tcp", l.address()); err == nil { // the reset may be faster
		_ = during.SetReadDeadline(time.Now().Add(10 * time.Second))
		if _, err := during.Read(make([]byte, 1)); err == nil || isTimeout(err) {
			t.Errorf("a new one: %v", err)
		}
		_ = during.Close()
	}
	l.set(open)
	after := dial(t, l)
	after.say("two")
	after.hears("two")
}

func TestLinkDelays(t *testing.T) {
	l := echo(t)
	c := dial(t, l)
	l.set(delay)
	began := time.Now()
	c.say("one")
	c.hears("one")
	if took := time.Since(began); took < 2*lateness {
		t.Errorf("there and back in %v", took)
	}
	_ = c.Conn.(*net.TCPConn).CloseWrite()
	_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := c.in.ReadByte(); !errors.Is(err, io.EOF) {
		t.Errorf("at the end: %v", err)
	}
}
