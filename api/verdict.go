package api

import (
	"bytes"
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/bide-dev/bide"
)

// verdict is what has become of the question that an approval's link asks: the run
// receives from the link's webhook, and its history says what.
type verdict struct {
	received int // decisions that the run has taken
	last     *bide.Record
	live     bool // the run waits for one, and there is time left
	over     bool // the run goes on without
}

// decided reports whether the run has what it asked for, and asks no more.
func (v *verdict) decided() bool { return !v.live && v.last != nil && v.last.Error == nil }

// late reports whether a decision would change nothing any more. Before the run
// receives for the first time a decision is kept for it.
func (v *verdict) late() bool { return v.over || !v.live && v.last != nil }

// text says what was decided, and by whom if they have said so.
func (v *verdict) text() string {
	if !v.decided() {
		return ""
	}
	var d struct {
		Approved *bool  `json:"approved"`
		By       string `json:"by"`
	}
	if json.Unmarshal(v.last.Data, &d) != nil || d.Approved == nil {
		return "This has been decided."
	}
	text := "This has been decided: rejected"
	if *d.Approved {
		text = "This has been decided: approved"
	}
	if d.By != "" {
		text += ", by " + d.By
	}
	return text + "."
}

// delivery is the id of a decision, the same for all who answer the same question: the
// first one counts.
func (v *verdict) delivery() string { return "approval-" + strconv.Itoa(v.received) }

// verdictOn reads what has become of the webhook.
func (h *Handler) verdictOn(ctx context.Context, target *bide.HookTarget, run *bide.Run) (*verdict, error) {
	v := &verdict{over: target.Over()}
	made := &makings{}
	for after := int64(0); ; {
		records, err := h.store.History(ctx, run.ID, after, mostLine)
		if err != nil {
			return nil, err
		}
		for i := range records {
			r := &records[i]
			after = r.Seq
			if r.Kind == bide.KindWebhook && !made.add(run.ID, r) && made.of(r.Path, r.Name) == target.Path() {
				v.last = r
				if r.Error == nil {
					v.received++
				}
			}
		}
		if len(records) < mostLine {
			break
		}
	}
	for i := range run.Waiting {
		w := &run.Waiting[i]
		if w.Kind == bide.KindWebhook && made.of(w.Path, w.Name) == target.Path() {
			v.live = w.Until.IsZero() || w.Until.After(time.Now())
			v.over = !v.live // its time is over, and no worker has seen that yet
		}
	}
	return v, nil
}

// makings are the webhooks that a run has made, in order. A line of the history that
// receives from one says its name only.
type makings []making

type making struct{ branch, name, place string }

// add reports whether the record is that a webhook was made.
func (m *makings) add(run string, r *bide.Record) bool {
	var at struct{ Run, Path string }
	if r.Error != nil || !bytes.HasPrefix(r.Data, []byte("{")) || json.Unmarshal(r.Data, &at) != nil || at.Run != run {
		return false
	}
	if place, _, _ := strings.Cut(at.Path, "~"); place != r.Path { // "~2" is the generation
		return false
	}
	*m = append(*m, making{r.Path[:strings.LastIndexByte(r.Path, '.')+1], r.Name, at.Path})
	return true
}

// of returns where the webhook was made that a path receives from: of those with the
// name the last one of its branch, or of the nearest branch around it.
func (m *makings) of(path, name string) string {
	var found making
	for _, x := range *m {
		if x.name == name && strings.HasPrefix(path, x.branch) && len(x.branch) >= len(found.branch) {
			found = x
		}
	}
	return found.place
}
