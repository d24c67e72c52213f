package bide

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode/utf8"
)

const barWidth = 20

// TerminalProgress is an option of [Handle.Result] that draws the run's progress
// on w while it is waited for: on a terminal one line that is drawn over,
//
//	[research] ██████░░░░░░░░░░░░░░ 33% - asking the model
//
// elsewhere a plain line for each change.
func TerminalProgress(w io.Writer) ResultOption {
	return &terminal{w: w, live: isTerminal(w)}
}

type terminal struct {
	w     io.Writer
	live  bool
	width int // of the line on the screen
	last  string
}

func (t *terminal) result(c *resultConfig) { c.watch = append(c.watch, t.draw) }

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
	if line != t.last && line != "" {
		if t.live {
			pad := max(t.width-utf8.RuneCountInString(line), 0)
			fmt.Fprintf(t.w, "\r%s%s", line, strings.Repeat(" ", pad))
		} else {
			fmt.Fprintln(t.w, line)
		}
		t.last, t.width = line, utf8.RuneCountInString(line)
	}
	if t.live && r.State.Ended() && t.last != "" {
		fmt.Fprintln(t.w)
	}
}

// progressLine says in one line how far a run is and what it waits for.
func progressLine(r Run, bar bool) string {
	var b strings.Builder
	fmt.Fprintf(&b, "[%s]", r.Workflow)
	p := r.Progress
	if p == nil {
		p = &ProgressState{}
	}
	percent := p.Percent
	if r.State == Succeeded {
		percent = 100
	}
	if bar {
		full := int(percent / 100 * barWidth)
		b.WriteString(" " + strings.Repeat("█", full) + strings.Repeat("░", barWidth-full))
	}
	fmt.Fprintf(&b, " %.0f%%", percent)
	said := p.Message
	if p.Step != nil {
		said = strings.TrimSpace(fmt.Sprintf("step %d of %d %s", p.Step.Index, p.Step.Count, said))
	}
	switch {
	case r.State.Ended():
		said = r.State.String()
	case r.State == Paused || r.State == Canceling:
		said = strings.TrimSpace(r.State.String() + " " + said)
	}
	if said != "" {
		b.WriteString(" - " + said)
	}
	if bar && !r.State.Ended() {
		for _, w := range r.Waiting {
			if w.Kind == KindRetry || w.Kind == KindPoll || w.Kind == KindStuck {
				b.WriteString(" (" + w.String() + ")")
				break
			}
		}
	}
	return b.String()
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
	if w.LastError != nil {
		s += ", last error: " + w.LastError.Message
	}
	return s
}
