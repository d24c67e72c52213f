package bide_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/bide-dev/bide"
)

// waits is a workflow of the cast that waits in every way that there is: by
// webhooks that come early, twice and late, events of a fixed URL, polls that a
// webhook wakes, that share their checks, have a breaker or learn, and races
// between them.
func waits(w *world) bide.Definition {
	check := func(name string, until int) func(context.Context) (int, error) {
		return func(ctx context.Context) (int, error) {
			n := w.call(context.WithValue(ctx, stepName{}, name))
			if n == 1 {
				return 0, errors.New("not reachable")
			}
			return min(n, until), nil // what is found does not tell how often it was looked for
		}
	}
	deliver := func(ctx bide.Context, name, url string, bodies ...string) error {
		_, err := effect(ctx, w, name, func(int) (string, error) {
			token := url[strings.LastIndex(url, "/")+1:]
			for _, body := range bodies {
				hook, err := w.client.Hook(context.Background(), token)
				if err != nil {
					return "", err
				}
				if _, err := hook.Deliver(context.Background(), bide.Delivery{Body: []byte(body)}); err != nil {
					return "", err
				}
			}
			return "delivered", nil
		})
		return err
	}
	return bide.Define("waits", func(ctx bide.Context, in string) (string, error) {
		var out []string
		early, err := bide.NewWebhook[string](ctx, "early")
		if err != nil {
			return "", err
		}
		if err := deliver(ctx, "deliver early", early.URL(), `"first"`, `"first"`, `"second"`); err != nil {
			return "", err
		}
		for range 2 { // the double counts once, however often the step is run
			s, err := early.Receive(ctx, bide.Timeout(time.Hour))
			if err != nil {
				return "", err
			}
			out = append(out, s)
		}
		event, err := bide.ReceiveEvent[string](ctx, "shop", "order-1")
		if err != nil {
			return "", err
		}
		out = append(out, event)

		ready, err := bide.NewWebhook[int](ctx, "ready")
		if err != nil {
			return "", err
		}
		if err := deliver(ctx, "deliver ready", ready.URL(), `1`); err != nil {
			return "", err
		}
		n, err := bide.Poll(ctx, "woken", check("check woken", 3), func(n int) bool { return n >= 3 },
			bide.Every(10*time.Minute), bide.Timeout(24*time.Hour), bide.WakeOn(ready), bide.OnCheck(func(bide.Check) {}))
		if err != nil {
			return "", err
		}
		out = append(out, fmt.Sprint(n))
		shared, err := bide.Poll(ctx, "shared", check("check shared", 3), func(n int) bool { return n >= 3 },
			bide.ETA{Min: time.Minute}, bide.Timeout(24*time.Hour), bide.Share("it"), bide.Breaker{Name: "api", Failures: 2})
		if err != nil {
			return "", err
		}
		out = append(out, fmt.Sprint(shared))

		late, err := bide.NewWebhook[string](ctx, "late")
		if err != nil {
			return "", err
		}
		winner, v, err := bide.Race(ctx,
			bide.Branch("hook", func(ctx bide.Context) (int, error) {
				_, err := late.Receive(ctx)
				return 0, err
			}),
			bide.Branch("poll", func(ctx bide.Context) (int, error) {
				return bide.Poll(ctx, "raced", check("check raced", 3), func(n int) bool { return n >= 3 },
					bide.Learned(time.Minute), bide.MaxAttempts(50), bide.StallTimeout(48*time.Hour))
			}))
		if err != nil {
			return "", err
		}
		if err := deliver(ctx, "deliver late", late.URL(), `"too late"`); err != nil {
			return "", err
		}
		return fmt.Sprint(strings.Join(out, " "), " ", winner, v), nil
	})
}
