package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bide-dev/bide"
)

// Request is what somebody asks to be allowed.
type Request struct {
	What string `json:"what"`
	From string `json:"from"`
}

// Verdict is what a person says, by the link or by a signal, and what a run
// returns.
type Verdict struct {
	Approved bool   `json:"approved"`
	By       string `json:"by"`
}

// office is who is asked, and how.
type office struct {
	mail     *mailer
	approver string
	boss     string
	day      time.Duration // shorter than a day for those who cannot wait
}

func (o *office) workflow() *bide.Workflow[Request, Verdict] {
	return bide.Define("approval", o.approve)
}

// approve asks, and waits for whatever is first: somebody follows the link,
// somebody sends a signal, or a week has passed.
func (o *office) approve(ctx bide.Context, r Request) (Verdict, error) {
	link, err := bide.NewWebhook[Verdict](ctx, "link")
	if err != nil {
		return Verdict{}, err
	}
	if err := o.write(ctx, o.approver, "please approve: "+r.What, link.URL()); err != nil {
		return Verdict{}, err
	}
	_, v, err := bide.Race(ctx,
		bide.Branch("link", func(ctx bide.Context) (Verdict, error) {
			return hear(func() (Verdict, error) { return link.Receive(ctx) })
		}),
		bide.Branch("signal", func(ctx bide.Context) (Verdict, error) {
			return hear(func() (Verdict, error) { return bide.Receive[Verdict](ctx, "verdict") })
		}),
		bide.Branch("calendar", func(ctx bide.Context) (Verdict, error) {
			return o.chase(ctx, r, link.URL())
		}))
	if err != nil {
		return Verdict{}, err
	}
	word := "refused"
	if v.Approved {
		word = "approved"
	}
	return v, o.write(ctx, r.From, fmt.Sprintf("%s by %s: %s", word, v.By, r.What), "")
}

// chase reminds, escalates, and in the end refuses.
func (o *office) chase(ctx bide.Context, r Request, link string) (Verdict, error) {
	asked := bide.Now(ctx)
	for _, s := range []struct {
		days    int
		to      string
		subject string
	}{
		{1, o.approver, "reminder: "},
		{2, o.approver, "second reminder: "},
		{3, o.boss, o.approver + " does not answer, please approve: "},
	} {
		bide.Progress(ctx, float64(100*(s.days-1)/7), fmt.Sprintf("waiting for a verdict, day %d", s.days))
		if err := bide.SleepUntil(ctx, asked.Add(time.Duration(s.days)*o.day)); err != nil {
			return Verdict{}, err
		}
		if err := o.write(ctx, s.to, s.subject+r.What, link); err != nil {
			return Verdict{}, err
		}
	}
	bide.Progress(ctx, 100*3/7, "waiting for "+o.boss)
	return Verdict{By: "the calendar"}, bide.SleepUntil(ctx, asked.Add(7*o.day))
}

// hear waits for a verdict that somebody has put a name to. The link is open to
// the world: what else comes through it must not fail the run.
func hear(receive func() (Verdict, error)) (Verdict, error) {
	for {
		v, err := receive()
		_, garbage := errors.AsType[*bide.CodecError](err)
		if !garbage && (err != nil || v.By != "") {
			return v, err
		}
	}
}

// write sends a mail. It may be tried several times, and is sent once, since the
// mail server knows the key.
func (o *office) write(ctx bide.Context, to, subject, link string) error {
	return bide.Do(ctx, "mail "+to, func(ctx context.Context) error {
		return o.mail.send(ctx, mail{To: to, Subject: subject, Link: link})
	})
}
