package main

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/bide-dev/bide"
)

// Ready is what a run returns.
type Ready struct {
	ID string `json:"id"`
	IP string `json:"ip"`
}

func newWorkflow(c *cloud) *bide.Workflow[string, Ready] {
	return bide.Define("cloudserver", c.provision)
}

// provision is a pipeline of four parts. Each is a function of its own: it is
// tested alone, used elsewhere, and timed here.
func (c *cloud) provision(ctx bide.Context, name string) (Ready, error) {
	bide.Progress(ctx, 0, "creating")
	s, err := bide.Phase(ctx, "create", func(ctx bide.Context) (server, error) { return c.create(ctx, name) })
	if err != nil {
		return Ready{}, err
	}
	bide.Progress(ctx, 10, "waiting for an address")
	s, err = bide.Phase(ctx, "address", func(ctx bide.Context) (server, error) { return c.awaitAddress(ctx, s.ID) })
	if err != nil {
		return Ready{}, err
	}
	bide.Progress(ctx, 50, "waiting for SSH at "+s.IP)
	_, err = bide.Phase(ctx, "ssh", func(ctx bide.Context) (string, error) { return c.login(ctx, s.IP) })
	if err != nil {
		return Ready{}, err
	}
	bide.Progress(ctx, 80, "configuring "+s.IP)
	_, err = bide.Phase(ctx, "configure", func(ctx bide.Context) (any, error) { return nil, c.configure(ctx, s.IP) })
	return Ready{s.ID, s.IP}, err
}

func (c *cloud) create(ctx bide.Context, name string) (server, error) {
	return bide.Step(ctx, "create", func(ctx context.Context) (server, error) {
		return c.order(ctx, name)
	})
}

// awaitAddress sleeps through most of what the cloud says it will take, and looks
// more often near the end.
func (c *cloud) awaitAddress(ctx bide.Context, id string) (server, error) {
	return bide.Poll(ctx, "address",
		func(ctx context.Context) (server, error) {
			s, err := c.server(ctx, id)
			if err == nil && s.State == "error" {
				err = bide.Permanent(fmt.Errorf("server %s cannot be built", id))
			}
			return s, err
		},
		func(s server) bool { return s.IP != "" },
		bide.ETA{Min: time.Second, Max: 30 * time.Second}, bide.Timeout(15*time.Minute))
}

// login tries until the machine lets us in. It is booting, so that it refuses
// connections is no failure; anything else is.
func (c *cloud) login(ctx bide.Context, ip string) (string, error) {
	return bide.Step(ctx, "ssh",
		func(ctx context.Context) (string, error) { return c.ssh(ctx, ip, "uptime") },
		bide.RetryPolicy{
			InitialInterval: 2 * time.Second, BackoffCoefficient: 1.5, MaximumInterval: 10 * time.Second,
			RetryIf: func(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) },
		},
		bide.AttemptTimeout(10*time.Second), bide.Timeout(5*time.Minute))
}

// configure runs commands that bear to be run twice, each a step: a crash in the
// middle goes on with the one it came to.
func (c *cloud) configure(ctx bide.Context, ip string) error {
	for _, command := range []string{"apt-get install -y nginx", "install -m 644 site.conf /etc/nginx", "systemctl reload nginx"} {
		_, err := bide.Step(ctx, command, func(ctx context.Context) (string, error) { return c.ssh(ctx, ip, command) })
		if err != nil {
			return err
		}
	}
	return nil
}
