package main

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/webhook"
)

// What comes from outside, by webhooks and as events.

const (
	verifier   = "chaos"
	hookSecret = "whsec_Y2hhb3MgY2hhb3MgY2hhb3MgY2hhb3Mg" // of nothing that matters
	source     = "shop"
)

// shopEvent is an event of the source.
type shopEvent struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// webhooks is what the servers do with what comes.
func webhooks() (webhook.Config, error) {
	standard, err := webhook.Standard(hookSecret)
	return webhook.Config{
		Verifiers: map[string]webhook.Verifier{verifier: standard},
		Endpoints: map[string]webhook.Endpoint{source: {Key: func(body []byte) (string, error) {
			var e shopEvent
			err := json.Unmarshal(body, &e)
			return e.Key, err
		}}},
	}, err
}

// hook has the witness told of a URL, and waits for what is delivered to it.
func (p *part) hook() error {
	hook, err := bide.NewWebhook[string](p.ctx, "hook")
	if err != nil {
		return err
	}
	if err := p.ask(hook.URL()); err != nil {
		return err
	}
	return p.hear(func(opts ...bide.ReceiveOption) (string, error) { return hook.Receive(p.ctx, opts...) })
}

// hear receives one thing, and sees to it that there is no other.
func (p *part) hear(receive func(...bide.ReceiveOption) (string, error)) error {
	text, err := receive()
	if err != nil {
		return err
	}
	p.story.Got = append(p.story.Got, text)
	switch more, err := receive(bide.Timeout(20 * time.Millisecond)); {
	case err == nil:
		p.story.Got = append(p.story.Got, "again: "+more)
	case !errors.Is(err, bide.ErrTimeout):
		return err
	}
	return p.step(p.place, soon)
}

// event waits for an event, which may come before or after that.
func (p *part) event() error {
	if err := p.ask(""); err != nil {
		return err
	}
	if err := bide.Sleep(p.ctx, p.within(time.Millisecond, 300*time.Millisecond)); err != nil {
		return err
	}
	return p.hear(func(opts ...bide.ReceiveOption) (string, error) {
		e, err := bide.ReceiveEvent[shopEvent](p.ctx, source, p.job.ID+"/"+p.place, opts...)
		return e.Value, err
	})
}

// completeOn polls what is never there, until a webhook says that it is.
func (p *part) completeOn() error {
	hook, err := bide.NewWebhook[string](p.ctx, "hook", bide.VerifiedBy(verifier))
	if err != nil {
		return err
	}
	if err := p.ask(hook.URL()); err != nil {
		return err
	}
	got, err := bide.Poll(p.ctx, p.place, never, func(s string) bool { return s != "" },
		bide.CompleteOn(hook), bide.Every(time.Hour), bide.NoTimeout{})
	if err != nil {
		return err
	}
	p.story.Got = append(p.story.Got, got)
	return p.step(p.place, soon)
}

// wakeOn polls seldom, until a webhook says that it is time to look. A check that is cut
// short twice in a row costs an interval.
func (p *part) wakeOn() error {
	hook, err := bide.NewWebhook[string](p.ctx, "hook")
	if err != nil {
		return err
	}
	if err := p.ask(hook.URL()); err != nil {
		return err
	}
	check := p.looks(plea, p.job.ID+"/"+p.place)
	return p.pollOf(func(ctx context.Context) (is bool, err error) { // one that fails costs an interval too
		for is, err = check(ctx); err != nil && pause(ctx, 100*time.Millisecond) == nil; is, err = check(ctx) {
		}
		return is, err
	}, bide.WakeOn(hook), bide.Every(30*time.Second), bide.AttemptTimeout(time.Minute))
}

// deliver delivers to a webhook, at least once.
func (p *patrons) deliver(_ *outcome, e event) {
	u, err := url.Parse(e.URL)
	if err != nil {
		panic(err)
	}
	value := e.Job + "/" + e.Ask
	id := strings.NewReplacer("/", "_", ".", "_").Replace(value)
	body, _ := json.Marshal(value)
	p.oftener(e, func(rng *rand.Rand) {
		p.insist(rng, func(door int) error {
			header, err := webhook.SignStandard(hookSecret, id, time.Now(), body)
			if err != nil {
				return err
			}
			return p.send(p.c.door(door, u.Path), body, header, nil)
		})
	})
}

// wake delivers, once there is something to see.
func (p *patrons) wake(o *outcome, e event) {
	p.c.witness.grant(e.Job + "/" + e.Ask)
	p.deliver(o, e)
}

// tellEvent sends an event, at least once.
func (p *patrons) tellEvent(_ *outcome, e event) {
	value := e.Job + "/" + e.Ask
	body, _ := json.Marshal(shopEvent{Key: value, Value: value})
	p.oftener(e, func(rng *rand.Rand) {
		direct := rng.IntN(3) == 0
		p.insist(rng, func(door int) error {
			if direct {
				_, err := p.client.DeliverEvent(p.ctx, source, value, bide.Delivery{ID: value, Body: body})
				return err
			}
			return p.send(p.c.door(door, "v1/endpoints", source), body, http.Header{"Webhook-Id": {value}}, nil)
		})
	})
}

// oftener does it once, and now and then again.
func (p *patrons) oftener(e event, do func(*rand.Rand)) {
	rng := p.dice(e.Job + e.Ask)
	for again := true; again; again = rng.IntN(4) == 0 {
		do(rng)
	}
}
