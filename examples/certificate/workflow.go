package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bide-dev/bide"
)

// order is how the authority shows one.
type order struct {
	ID     string `json:"id"`
	Status string `json:"status"` // pending, processing, valid, invalid
	TXT    string `json:"txt"`    // what it wants to find at _acme-challenge
	Reason string `json:"reason,omitempty"`
}

// InvalidOrderError is an order that the authority has refused. Asking again does
// not help: it is permanent.
type InvalidOrderError struct {
	Domain string `json:"domain"`
	Reason string `json:"reason"`
}

func (e *InvalidOrderError) Error() string {
	return fmt.Sprintf("no certificate for %s: %s", e.Domain, e.Reason)
}

// Permanent tells steps and polls not to try again.
func (e *InvalidOrderError) Permanent() bool { return true }

func init() { bide.RegisterError(&InvalidOrderError{}) }

func newWorkflow(ca *client) *bide.Workflow[string, string] {
	return bide.Define("certificate", ca.certify)
}

// certify returns the certificate of a domain, in PEM.
func (c *client) certify(ctx bide.Context, domain string) (string, error) {
	bide.Progress(ctx, 0, "ordering")
	o, err := bide.Step(ctx, "order", func(ctx context.Context) (order, error) { return c.order(ctx, domain) })
	if err != nil {
		return "", err
	}

	// Whatever becomes of the order, also if the run is canceled: the challenge does
	// not stay in the DNS.
	pem, err := c.obtain(ctx, domain, o)
	failure := bide.Do(bide.WithoutCancel(ctx), "withdraw", func(ctx context.Context) error { return c.publish(ctx, domain, "") })
	return pem, errors.Join(err, failure)
}

func (c *client) obtain(ctx bide.Context, domain string, o order) (string, error) {
	bide.Progress(ctx, 20, "publishing the DNS challenge")
	err := bide.Do(ctx, "publish", func(ctx context.Context) error { return c.publish(ctx, domain, o.TXT) })
	if err != nil {
		return "", err
	}
	bide.Progress(ctx, 40, "waiting for the authority")
	if err := c.awaitValid(ctx, domain, o.ID); err != nil {
		return "", err
	}
	bide.Progress(ctx, 80, "downloading")
	return bide.Step(ctx, "download", func(ctx context.Context) (string, error) { return c.download(ctx, o.ID) })
}

// awaitValid asks at the pace that the authority names with each answer, and else
// ever more seldom.
func (c *client) awaitValid(ctx bide.Context, domain, id string) error {
	_, err := bide.Poll(ctx, "valid",
		func(ctx context.Context) (order, error) {
			o, err := c.status(ctx, id)
			if err == nil && o.Status == "invalid" {
				err = &InvalidOrderError{Domain: domain, Reason: o.Reason}
			}
			return o, err
		},
		func(o order) bool { return o.Status == "valid" },
		bide.Exponential{Interval: 2 * time.Second, Max: 30 * time.Second}, bide.Timeout(time.Hour))
	return err
}
