package api

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/bide-dev/bide"
)

// runView is a run as it is told.
type runView struct {
	ID         string                     `json:"id"`
	Workflow   string                     `json:"workflow"`
	Queue      string                     `json:"queue"`
	State      bide.State                 `json:"state"`
	Version    int64                      `json:"version"`
	Gap        bool                       `json:"gap,omitempty"`
	Parent     string                     `json:"parent,omitempty"`
	Labels     map[string]string          `json:"labels,omitempty"`
	Generation int                        `json:"generation,omitempty"`
	Trace      string                     `json:"trace,omitempty"`
	Progress   *bide.ProgressState        `json:"progress"`
	ETA        *time.Time                 `json:"eta"`
	NextPoll   *int64                     `json:"next_poll_ms"`
	Attempt    int                        `json:"attempt"`
	Waiting    []bide.Wait                `json:"waiting"`
	CreatedAt  time.Time                  `json:"created_at"`
	StartedAt  *time.Time                 `json:"started_at"`
	FinishedAt *time.Time                 `json:"finished_at"`
	DeadlineAt *time.Time                 `json:"deadline_at"`
	Input      json.RawMessage            `json:"input,omitempty"`
	Values     map[string]json.RawMessage `json:"values,omitempty"`
	Result     json.RawMessage            `json:"result"`
	Error      *problem                   `json:"error"`
	By         *string                    `json:"completed_by"`
	Links      links                      `json:"links"`
}

type links struct {
	Self    string `json:"self"`
	Result  string `json:"result"`
	Events  string `json:"events"`
	Stream  string `json:"stream"`
	History string `json:"history"`
	Cancel  string `json:"cancel"`
}

// view tells the run as it is at the time.
func (h *Handler) view(run *bide.Run, at time.Time) *runView {
	v := viewOf(run, h.cfg.Prefix)
	if !run.State.Ended() {
		eta, next := pace(run, at)
		ms := h.stretched(next).Milliseconds()
		v.ETA, v.NextPoll = moment(eta), &ms
	}
	return v
}

func viewOf(run *bide.Run, prefix string) *runView {
	self := runPath(prefix, run.ID)
	v := &runView{ID: run.ID, Workflow: run.Workflow, Queue: run.Queue, State: run.State, Version: run.Version,
		Parent: run.Parent, Labels: run.Labels, Generation: run.Generation, Trace: run.Trace,
		Progress: run.Progress, Attempt: 1, Waiting: run.Waiting, CreatedAt: run.CreatedAt, StartedAt: moment(run.StartedAt),
		FinishedAt: moment(run.EndedAt), DeadlineAt: moment(run.Deadline), Input: run.Input, Values: run.Values, Result: run.Result,
		Links: links{Self: self, Result: self + "/result", Events: self + "/events", Stream: self + "/stream",
			History: self + "/history", Cancel: self + "/cancel"}}
	if v.Waiting == nil {
		v.Waiting = []bide.Wait{}
	}
	for _, x := range run.Waiting {
		v.Attempt = max(v.Attempt, x.Attempt)
	}
	if run.Workflow == WebhookWorkflow { // there is a secret in it
		v.Input = nil
	}
	if by := completedBy(run.State); by != "" {
		v.By = &by
	}
	v.Error = failed(run)
	return v
}

func runPath(prefix, id string) string { return prefix + "/v1/runs/" + url.PathEscape(id) }

// moment is t, nil for the zero time.
func moment(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

func completedBy(s bide.State) string {
	switch s {
	case bide.Succeeded, bide.Failed:
		return "workflow"
	case bide.Canceled:
		return "cancel"
	case bide.Terminated:
		return "terminate"
	case bide.TimedOut:
		return "deadline"
	}
	return ""
}

// failed says why a run ended otherwise than well, nil if it did not.
func failed(run *bide.Run) *problem {
	if !run.State.Ended() || run.State == bide.Succeeded {
		return nil
	}
	k := runFailed
	switch run.State {
	case bide.Canceled, bide.Terminated:
		k = runCanceled
	case bide.TimedOut:
		k.title = "The run timed out"
	}
	detail := "the run is " + run.State.String()
	if run.Error != nil && run.Error.Message != "" {
		detail = run.Error.Message
	}
	p := refusal(k, detail)
	p.Failure = run.Error
	return p
}

// tag is the run's ETag: its version, and the state where that changes without a
// commit, as a worker takes the run or its time comes.
func tag(run *bide.Run) string {
	t := "v" + strconv.FormatInt(run.Version, 10)
	if run.State == bide.Queued || run.State == bide.Running {
		t += "-" + run.State.String()
	}
	return `"` + t + `"`
}

// heads sets the headers of an answer that tells a run.
func (h *Handler) heads(w http.ResponseWriter, run *bide.Run, at time.Time) {
	w.Header().Set("ETag", tag(run))
	if !run.State.Ended() {
		_, next := pace(run, at)
		w.Header().Set("Retry-After", strconv.Itoa(seconds(h.stretched(next))))
	}
}

func (h *Handler) sendRun(w http.ResponseWriter, status int, run *bide.Run) error {
	at := time.Now()
	h.heads(w, run, at)
	return sendJSON(w, status, h.view(run, at))
}
