package api

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"html/template"
	"net/http"
	"unicode/utf8"

	"github.com/bide-dev/bide"
)

//go:embed approval.html
var approvalHTML string

var approvalTemplate = template.Must(template.New("approval").Parse(approvalHTML))

//go:embed approval.css
var approvalCSS string

// policy lets the page do nothing but send its form back: no script, no frame, and
// no other site learns of its address, which is the secret.
var policy = func() string {
	sum := sha256.Sum256([]byte(approvalCSS))
	return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) +
		"'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
}()

// approval is what the page says.
type approval struct {
	CSS      template.CSS
	Title    string
	Text     string // what came of it; empty: the question is asked
	Workflow string
	Run      string
	Question string
	By       string
}

// QuestionKey is the key under which a run publishes what the approval page asks.
const QuestionKey = "question"

// approvalPage asks a person. It decides nothing: links are looked at by programs.
func (h *Handler) approvalPage(w http.ResponseWriter, r *http.Request) error {
	q, err := h.asked(r)
	if err != nil {
		return h.sorry(w, r, err)
	}
	if q.verdict.decided() {
		return q.tooLate(w, http.StatusOK)
	}
	q.By = r.URL.Query().Get("by")
	return showApproval(w, http.StatusOK, &q.approval)
}

// asking is what a token asks, and where the decision goes.
type asking struct {
	approval
	target  *bide.HookTarget
	verdict *verdict
}

// asked finds what the token is for. What is over is [bide.ErrGone], with what was
// decided if anything was.
func (h *Handler) asked(r *http.Request) (*asking, error) {
	target, err := h.client.Hook(r.Context(), r.PathValue("token"))
	if err != nil {
		return nil, err
	}
	if target.Verify != "" {
		return nil, bide.ErrNotFound // deliveries to it are signed; a page cannot
	}
	run, err := h.store.Run(r.Context(), target.Run)
	if err != nil {
		return nil, err
	}
	v, err := h.verdictOn(r.Context(), target, &run)
	if err != nil {
		return nil, err
	}
	if text := v.text(); run.State.Ended() && text != "" {
		return nil, refusal(gone, text)
	}
	if run.State.Ended() || run.State == bide.Canceling || v.late() && !v.decided() {
		return nil, bide.ErrGone
	}
	return &asking{approval{Title: "Your decision is asked for", Workflow: run.Workflow, Run: run.ID, Question: question(&run)}, target, v}, nil
}

// tooLate says that there is a decision already.
func (q *asking) tooLate(w http.ResponseWriter, status int) error {
	q.Title, q.Text = "Decided", q.verdict.text()
	return showApproval(w, status, &q.approval)
}

// question is what the run has published to be asked, or how it describes itself.
func question(run *bide.Run) string {
	if data := run.Values[QuestionKey]; data != nil {
		var text string
		if json.Unmarshal(data, &text) == nil {
			return text
		}
		return string(data)
	}
	if run.Progress != nil && run.Progress.Message != "" {
		return run.Progress.Message
	}
	return "Approve " + run.Workflow + "?"
}

// Bounds of the form.
const (
	mostForm    = 64 << 10
	mostComment = 10_000
)

// decision is what the run receives.
type decision struct {
	Approved bool   `json:"approved"`
	By       string `json:"by"`
	Comment  string `json:"comment"`
}

// approve takes the page's form. The token in its path is the secret that makes it
// the person's own.
func (h *Handler) approve(w http.ResponseWriter, r *http.Request) error {
	q, err := h.asked(r)
	if err != nil {
		return h.sorry(w, r, err)
	}
	if q.verdict.decided() {
		return q.tooLate(w, http.StatusConflict)
	}
	r.Body = http.MaxBytesReader(w, r.Body, mostForm)
	if err := r.ParseForm(); err != nil {
		if tooLarge := (*http.MaxBytesError)(nil); !errors.As(err, &tooLarge) {
			err = invalid("body", "is not the page's form")
		}
		return h.sorry(w, r, err)
	}
	d := decision{By: r.PostForm.Get("by"), Comment: r.PostForm.Get("comment")}
	switch r.PostForm.Get("decision") {
	case "approve":
		d.Approved = true
	case "reject":
	default:
		return h.sorry(w, r, invalid("decision", `must be "approve" or "reject"`))
	}
	if len(d.By) > maxName || len(d.Comment) > mostComment || !utf8.ValidString(d.By) || !utf8.ValidString(d.Comment) {
		return h.sorry(w, r, invalid("comment", "or name is too long"))
	}
	body, err := json.Marshal(d)
	if err != nil {
		return err
	}
	receipt, err := q.target.Deliver(r.Context(), bide.Delivery{ID: q.verdict.delivery(), Body: body})
	if err != nil || receipt.Late {
		return h.sorry(w, r, cmp.Or(err, bide.ErrGone))
	}
	status := http.StatusOK
	switch {
	case receipt.Duplicate: // it is on its way to the run; what it says is known once it is there
		status = http.StatusConflict
		q.Title, q.Text = "Decided", "A decision was made before yours, and is kept. Yours changes nothing."
	case d.Approved:
		q.Title, q.Text = "Approved", "Your decision is kept: approved."
	default:
		q.Title, q.Text = "Rejected", "Your decision is kept: rejected."
	}
	return showApproval(w, status, &q.approval)
}

// sorry shows what is wrong to a person.
func (h *Handler) sorry(w http.ResponseWriter, r *http.Request, err error) error {
	p, known := problemOf(err)
	if !known {
		h.cfg.Logger.Error("an approval failed", "route", r.Pattern, "error", err)
	}
	a := &approval{Title: p.Title, Text: p.Detail}
	switch {
	case errors.Is(err, bide.ErrNotFound):
		a.Text = "There is nothing to decide under this link. It may be misspelt, or its time is over."
	case errors.Is(err, bide.ErrGone):
		a.Title, a.Text = "Too late", "What this link was for is over: the run does not wait for a decision any more."
	case p.Code == gone.code:
		a.Title = "Too late"
	}
	if p.RetryAfter > 0 {
		w.Header().Set("Retry-After", "30")
	}
	return showApproval(w, p.Status, a)
}

func showApproval(w http.ResponseWriter, status int, a *approval) error {
	a.CSS = template.CSS(approvalCSS) //nolint:gosec // ours
	var page bytes.Buffer
	if err := approvalTemplate.Execute(&page, a); err != nil {
		return err
	}
	header := w.Header()
	header.Set("Content-Security-Policy", policy)
	header.Set("Referrer-Policy", "same-origin")
	header.Set("Cache-Control", "no-store")
	header.Set("X-Robots-Tag", "noindex, nofollow")
	send(w, status, "text/html; charset=utf-8", page.Bytes())
	return nil
}
