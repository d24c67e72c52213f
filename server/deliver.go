package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/api"
	"github.com/bide-dev/bide/internal/netguard"
	"github.com/bide-dev/bide/wait"
	"github.com/bide-dev/bide/webhook"
)

// The pauses between attempts to deliver a webhook, those that Standard Webhooks
// recommends: a receiver that is down for a day hears of it all the same.
var deliveryPauses = [...]time.Duration{5 * time.Second, 5 * time.Minute, 30 * time.Minute,
	2 * time.Hour, 5 * time.Hour, 10 * time.Hour, 10 * time.Hour}

const (
	deliveryTimeout = 15 * time.Second // of one attempt
	maxRetryAfter   = 24 * time.Hour   // the longest pause that a receiver can ask for
	maxResult       = 64 << 10         // bytes; a larger one is left out, to be fetched
	maxDeliveries   = 100              // in flight
	maxAnswerHead   = 64 << 10         // bytes, of the headers of an answer from outside
)

// delivered is the result of a run that delivers a webhook.
type delivered struct {
	Status int `json:"status"`
}

// sender delivers webhooks: each as a run of its own that starts when another
// ends (see [bide.NewRun]), so that a crash loses none.
type sender struct {
	store  bide.Store
	base   string // of the links in what is sent
	client *http.Client
}

// sendWebhooks works until ctx ends.
func (s *Server) sendWebhooks(ctx context.Context) error {
	worker := bide.NewWorker(s.store, bide.WorkerConfig{Queues: []string{api.WebhookQueue}, MaxSteps: maxDeliveries,
		GracePeriod: gracePeriod, Logger: s.log, Intercept: withRun})
	base := s.cfg.Prefix
	if s.cfg.PublicURL != "" {
		base = strings.TrimRight(s.cfg.PublicURL, "/")
	}
	x := &sender{store: s.store, base: base, client: &http.Client{Transport: s.outward,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
	worker.Register(bide.Define(api.WebhookWorkflow, x.deliver))
	return worker.Run(ctx)
}

// outward is the way out to URLs that callers have given.
func outward(allowPrivate bool) http.RoundTripper {
	var allowed []netip.Prefix
	if allowPrivate {
		allowed = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}
	}
	way := netguard.Transport(nil, allowed...)
	way.MaxResponseHeaderBytes = maxAnswerHead
	return way
}

type runKey struct{}

// withRun tells a step whose it is.
func withRun(ctx context.Context, c bide.Call) (context.Context, func(error)) {
	return context.WithValue(ctx, runKey{}, c.Run), func(error) {}
}

func runIn(ctx context.Context) string {
	id, _ := ctx.Value(runKey{}).(string)
	return id
}

// deliver is the workflow. What is sent is read once and kept, since the
// signature of each attempt is over the same bytes.
func (x *sender) deliver(ctx bide.Context, in api.WebhookInput) (delivered, error) {
	body, err := bide.Step(ctx, "read", x.read)
	if err != nil {
		return delivered{}, err
	}
	return bide.Step(ctx, "post", func(ctx context.Context) (delivered, error) { return x.post(ctx, in, body) },
		bide.RetryPolicy{MaximumAttempts: len(deliveryPauses) + 1}, bide.AttemptTimeout(deliveryTimeout))
}

// read says of the run that has ended what is to be sent.
func (x *sender) read(ctx context.Context) (json.RawMessage, error) {
	self, err := x.store.Run(ctx, runIn(ctx))
	if err != nil {
		return nil, err
	}
	run, err := x.store.Run(ctx, self.Parent)
	if errors.Is(err, bide.ErrNotFound) {
		return nil, bide.Permanent(fmt.Errorf("the run that has ended is gone: %w", err))
	}
	if err != nil {
		return nil, err
	}
	run.Input, run.Values = nil, nil
	if len(run.Result) > maxResult {
		run.Result = nil
	}
	return api.WebhookBody(run, x.base)
}

// post makes one attempt.
func (x *sender) post(ctx context.Context, in api.WebhookInput, body []byte) (delivered, error) {
	id := runIn(ctx)
	to, err := url.Parse(in.URL)
	if err == nil {
		err = netguard.CheckURL(to)
	}
	if err != nil {
		return delivered{}, bide.Permanent(errors.New("the webhook's URL is none that can be sent to"))
	}
	header, err := webhook.SignStandard(in.Secret, id, time.Now(), body)
	if err != nil {
		return delivered{}, bide.Permanent(err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, in.URL, bytes.NewReader(body))
	if err != nil {
		return delivered{}, bide.Permanent(errors.New("the webhook's URL is none that can be sent to"))
	}
	req.Header = header
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "bide-webhooks/1")
	pause := pauseAfter(bide.AttemptNumber(ctx), id)
	resp, err := x.client.Do(req)
	if err != nil {
		return delivered{}, bide.RetryAfter(unreached(err), pause)
	}
	defer resp.Body.Close()
	_, _ = io.CopyN(io.Discard, resp.Body, 64<<10) // so that the connection can be used again
	switch {
	case resp.StatusCode >= 200 && resp.StatusCode < 300:
		return delivered{Status: resp.StatusCode}, nil
	case resp.StatusCode == http.StatusGone:
		return delivered{}, bide.Permanent(errors.New("the receiver answered 410: it wants no more of these"))
	}
	if hint := wait.ParseHint(resp.StatusCode, resp.Header, time.Now()); hint.After > pause {
		pause = min(hint.After, maxRetryAfter)
	}
	return delivered{}, bide.RetryAfter(fmt.Errorf("the receiver answered %d", resp.StatusCode), pause)
}

// unreached is why a receiver was not reached, without its URL, which may hold a
// secret, and without what a guarded name leads to.
func unreached(err error) error {
	if _, blocked := errors.AsType[*netguard.BlockedError](err); blocked {
		return bide.Permanent(errors.New("the webhook's URL leads to an address that is not public"))
	}
	if inner, ok := errors.AsType[*url.Error](err); ok {
		err = inner.Err
	}
	return err
}

// pauseAfter is the pause after the n-th attempt, and up to a tenth more, by the
// run: what failed at one time is not sent again at one time.
func pauseAfter(n int, run string) time.Duration {
	if n < 1 || n > len(deliveryPauses) {
		return 0
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(run)) // never fails
	pause := deliveryPauses[n-1]
	return pause + time.Duration(float64(pause)*0.1*float64(h.Sum32())/(1<<32))
}
