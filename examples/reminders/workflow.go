package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bide-dev/bide"
)

// Outcome is what a run returns.
type Outcome struct {
	Answer  string   `json:"answer,omitempty"`  // what the customer said
	Unknown []string `json:"unknown,omitempty"` // mails that may have been sent, or not
}

// subjects are the mails, a day apart.
var subjects = []string{"Your invoice", "A reminder", "A second reminder", "The last reminder"}

// reminders is what the workflow works with.
type reminders struct {
	mail *mailer
	day  time.Duration // shorter than a day for those who cannot wait
}

func (r *reminders) workflow() *bide.Workflow[string, Outcome] {
	return bide.Define("reminders", r.remind)
}

// remind writes to the customer once a day, and stops at the first answer.
func (r *reminders) remind(ctx bide.Context, customer string) (o Outcome, err error) {
	for i, subject := range subjects {
		bide.Progress(ctx, float64(100*i/len(subjects)), fmt.Sprintf("mail %d of %d: %s", i+1, len(subjects), subject))
		switch err := r.write(ctx, customer, subject); {
		case errors.Is(err, bide.ErrInterrupted):
			// We died while it was being sent. Nobody knows whether it was, and a second
			// one would be worse than none.
			o.Unknown = append(o.Unknown, subject)
		case err != nil:
			return o, err
		}
		if o.Answer, err = r.awaitAnswer(ctx); err != nil || o.Answer != "" {
			return o, err
		}
	}
	return o, nil
}

// write sends a mail, at most once: the mail server knows no keys, so that what may
// have been sent must not be tried again.
func (r *reminders) write(ctx bide.Context, to, subject string) error {
	return bide.Do(ctx, subject, func(ctx context.Context) error {
		return r.mail.send(ctx, to, subject)
	}, bide.RetryPolicy{MaximumAttempts: 1})
}

// awaitAnswer waits for the customer, a day at most; "" is no answer. An answer that
// came while we wrote, or while no process was there, has been kept.
func (r *reminders) awaitAnswer(ctx bide.Context) (string, error) {
	_, answer, err := bide.Race(ctx,
		bide.Branch("answer", func(ctx bide.Context) (string, error) { return bide.Receive[string](ctx, "answer") }),
		bide.Branch("day", func(ctx bide.Context) (string, error) { return "", bide.Sleep(ctx, r.day) }))
	return answer, err
}
