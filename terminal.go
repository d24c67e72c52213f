package bide

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

const barWidth = 20

// TerminalProgress is an option of [Handle.Result] that draws the run's progress
// on w while it is waited for: on a terminal one line that is drawn over (of
// COLUMNS columns, or 80),
//
//	[research] ██████░░░░░░░░░░░░░░ 33% - asking the model
//
// elsewhere a plain line for each change.
func TerminalProgress(w io.Writer) ResultOption {
	t := &terminal{w: w, live: isTerminal(w), columns: 80}
	if n, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && n > 0 {
		t.columns = n
	}
	return t
}

type terminal struct {
	w       io.Writer
	live    bool
	columns int
	last    string // what stands there
}

func (t *terminal) result(c *resultConfig) { c.watch = append(c.watch, t) }

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

func (t *terminal) draw(r Run) {
	line := progressLine(r, t.live)
	if line == t.last || line == "" {
		return
	}
	if t.live {
		line = cutTo(line, t.columns)
		fmt.Fprintf(t.w, "\r%s%s", line, strings.Repeat(" ", max(utf8.RuneCountInString(t.last)-utf8.RuneCountInString(line), 0)))
	} else {
		fmt.Fprintln(t.w, line)
	}
	t.last = line
}

// close leaves the line to what is printed next.
func (t *terminal) close() {
	if t.live && t.last != "" {
		fmt.Fprintln(t.w)
		t.last = ""
	}
}

// cutTo shortens a line to fewer runes than columns: one that wraps cannot be
// drawn over.
func cutTo(line string, columns int) string {
	if r := []rune(line); len(r) >= columns {
		return string(r[:max(columns-2, 0)]) + "…"
	}
	return line
}

// progressLine says in one line how far a run is; "" while there is nothing to
// say.
func progressLine(r Run, bar bool) string {
	p := r.Progress
	trouble := ""
	for _, w := range r.Waiting {
		if w.LastError != nil && (w.Kind != KindPoll || w.Streak > 0) {
			trouble = fmt.Sprintf(" (%s, attempt %d: %s)", w.Name, w.Attempt, w.LastError.Message)
			break
		}
	}
	if p == nil {
		if !r.State.Ended() && trouble == "" {
			return ""
		}
		p = &ProgressState{}
	}
	percent := p.Percent
	if r.State == Succeeded {
		percent = 100
	}
	var b strings.Builder
	fmt.Fprintf(&b, "[%s]", r.Workflow)
	if bar {
		full := int(percent / 100 * barWidth)
		b.WriteString(" " + strings.Repeat("█", full) + strings.Repeat("░", barWidth-full))
	}
	fmt.Fprintf(&b, " %.0f%%", percent)
	if said := saying(r, p); said != "" {
		b.WriteString(" - " + said)
	}
	if !r.State.Ended() {
		b.WriteString(trouble)
	}
	return b.String()
}

// saying is the words of a progress line.
func saying(r Run, p *ProgressState) string {
	if r.State.Ended() {
		return r.State.String()
	}
	var words []string
	if r.State == Paused || r.State == Canceling {
		words = append(words, r.State.String())
	}
	if s := p.Step; s != nil {
		words = append(words, fmt.Sprintf("step %d of %d", s.Index, s.Count), s.Name)
	}
	words = append(words, p.Message)
	return strings.Join(slices.DeleteFunc(words, func(w string) bool { return w == "" }), " ")
}

// String says the wait in words: "poll deep-research, attempt 14, next 10:04:05".
func (w Wait) String() string {
	s := w.Kind.String()
	if w.Name != "" {
		s += " " + w.Name
	}
	clock := func(t time.Time) string {
		if d := time.Since(t); d < 12*time.Hour && d > -12*time.Hour {
			return t.Local().Format(time.TimeOnly)
		}
		return t.Local().Format(time.DateTime)
	}
	if w.Attempt > 0 {
		s += fmt.Sprintf(", attempt %d", w.Attempt)
	}
	if !w.NextAt.IsZero() {
		s += ", next " + clock(w.NextAt)
	}
	if !w.Until.IsZero() {
		s += ", until " + clock(w.Until)
	}
	switch {
	case w.LastError != nil && (w.Kind != KindPoll || w.Streak > 0):
		s += ", last error: " + w.LastError.Message
	case w.LastValue != nil:
		s += ", last: " + shorten(string(w.LastValue), 80)
	}
	if w.Poll != nil && !w.Poll.PercentAt.IsZero() {
		s += fmt.Sprintf(", %.0f %%", w.Poll.Percent)
	}
	return s
}
