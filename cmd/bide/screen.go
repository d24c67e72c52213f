package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
	"unicode"

	"golang.org/x/term"
)

// screen is where the program talks: on a terminal the last lines are drawn over
// and over, elsewhere there are lines that stay only.
type screen struct {
	w     io.Writer
	file  *os.File // nil: not a terminal
	color bool

	mu    sync.Mutex
	drawn int // how many lines there are to draw over
}

func newScreen(w io.Writer) *screen {
	s := &screen{w: w}
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		s.file, s.color = f, os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	}
	return s
}

func (s *screen) live() bool { return s.file != nil }

// say prints a line.
func (s *screen) say(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clearLocked()
	fmt.Fprintln(s.w, plain(fmt.Sprintf(format, args...)))
}

// Write implements [io.Writer], for the log.
func (s *screen) Write(p []byte) (int, error) {
	s.say("%s", strings.TrimSuffix(string(p), "\n"))
	return len(p), nil
}

const (
	green = "32"
	red   = "31"
)

// verdict is the last line, its first word in color.
func (s *screen) verdict(color, word, rest string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clearLocked()
	if s.color {
		word = "\x1b[" + color + "m" + word + "\x1b[0m"
	}
	fmt.Fprintln(s.w, word+plain(rest))
}

// clear leaves the last lines to what is printed next.
func (s *screen) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clearLocked()
}

func (s *screen) clearLocked() {
	if s.drawn > 0 {
		fmt.Fprint(s.w, s.home()+"\x1b[J")
		s.drawn = 0
	}
}

// home is the way to the beginning of what is drawn.
func (s *screen) home() string {
	if s.drawn > 1 {
		return fmt.Sprintf("\r\x1b[%dA", s.drawn-1)
	}
	return "\r"
}

const drawEvery = 500 * time.Millisecond

// redraw draws what line returns as the last line, until the returned function
// is called. Where there is no terminal it does nothing.
func (s *screen) redraw(line func() string) (stop func()) {
	if !s.live() {
		return func() {}
	}
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		ticker := time.NewTicker(drawEvery)
		defer ticker.Stop()
		for {
			s.draw(line())
			select {
			case <-ticker.C:
			case <-quit:
				return
			}
		}
	}()
	return func() {
		close(quit)
		<-done
		s.clear()
	}
}

// draw draws lines in the place of those that are there.
func (s *screen) draw(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	columns, rows := 80, 24
	if w, h, err := term.GetSize(int(s.file.Fd())); err == nil && w > 0 && h > 0 {
		columns, rows = w, h
	}
	lines := strings.Split(text, "\n")
	if most := max(rows-2, 1); len(lines) > most { // what has scrolled away cannot be drawn over
		lines = append(lines[:most-1], fmt.Sprintf("… and %d more", len(lines)-most+1))
	}
	for i := range lines {
		lines[i] = cutTo(plain(lines[i]), columns-1) + "\x1b[K"
	}
	fmt.Fprint(s.w, s.home()+strings.Join(lines, "\r\n")+"\x1b[J")
	s.drawn = len(lines)
}

// cutTo shortens a line: one that wraps cannot be drawn over.
func cutTo(line string, columns int) string {
	if r := []rune(line); len(r) > columns {
		return string(r[:max(columns-1, 0)]) + "…"
	}
	return line
}

// plain takes out of a text, which a service may have had a say in, what would
// direct the terminal.
func plain(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || !unicode.IsPrint(r) && !unicode.IsSpace(r) {
			return ' '
		}
		return r
	}, text)
}
