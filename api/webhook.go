package api

import (
	"encoding/base64"
	"encoding/json"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/internal/netguard"
)

// A run that is to tell of its end is followed by one of this workflow, in this
// queue, with a [WebhookInput]; its Parent is the run that has ended. The server
// has a worker for them.
const (
	WebhookWorkflow = "bide.webhook"
	WebhookQueue    = "bide"
)

// WebhookInput says where a run's end is posted to. The API never shows it.
type WebhookInput struct {
	URL    string `json:"url"`
	Secret string `json:"secret"` // "whsec_…", for the signature (Standard Webhooks)
}

// WebhookBody is what is posted when a run has ended: its type is "run.ended", its
// data the run as GET tells it.
func WebhookBody(run bide.Run, prefix string) ([]byte, error) {
	return json.Marshal(struct {
		Type      string    `json:"type"`
		Timestamp time.Time `json:"timestamp"`
		Data      *runView  `json:"data"`
	}{"run.ended", run.EndedAt, viewOf(&run, prefix)})
}

// onEnd is the run that tells of another's end.
func (h *Handler) onEnd(body json.RawMessage) (*bide.NewRun, error) {
	o, err := parseObject(body)
	if err != nil {
		return nil, invalid("webhook", `must be an object with "url" and "secret"`)
	}
	in := WebhookInput{URL: o.text("url"), Secret: o.text("secret")}
	if err := o.done(); err != nil {
		p, _ := problemOf(err)
		within := *p
		within.Field = "webhook." + p.Field
		within.Detail = "in webhook: " + p.Detail
		return nil, &within
	}
	to, err := url.Parse(in.URL)
	if err != nil || len(in.URL) > 2048 || netguard.CheckURL(to) != nil {
		return nil, invalid("webhook.url", "must be an http or https URL without a user in it")
	}
	addr, err := netip.ParseAddr(strings.Trim(to.Hostname(), "[]"))
	inside := err == nil && netguard.Check(addr) != nil || strings.EqualFold(to.Hostname(), "localhost")
	if inside && !h.cfg.AllowPrivate {
		return nil, invalid("webhook.url", "leads to an address that is not public")
	}
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(in.Secret, "whsec_"))
	if !strings.HasPrefix(in.Secret, "whsec_") || err != nil || len(key) < 24 || len(key) > 64 {
		return nil, invalid("webhook.secret", `must be "whsec_" and 24 to 64 bytes as base64`)
	}
	input, err := json.Marshal(in)
	return &bide.NewRun{Workflow: WebhookWorkflow, Queue: WebhookQueue, Input: input, Detached: true}, err
}
