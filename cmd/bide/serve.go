package main

import (
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/bide-dev/bide/server"
)

func newServe() *cobra.Command {
	t, cfg, level := &target{}, server.Config{}, slog.LevelInfo
	c := &cobra.Command{
		Use:   "serve",
		Short: "Serve a file or a Postgres database to other machines",
		Long: `Serve a file or a Postgres database: HTTP API, workers on other machines, webhooks.
It prints its URL, and goes on until Ctrl-C or SIGTERM.

An address that other machines can reach needs an API key in the store, and from
the first key on every request needs one:

  bide token create me --scope admin --db bide.db
  bide serve --db bide.db --addr :7433 --tls-cert cert.pem --tls-key key.pem

Its log, on stderr, has a line msg=audit for each request that changes something:
who, what and which run.

Services that can be given one URL only, for all jobs, are named in bide.yaml; they
deliver to /v1/endpoints/SOURCE, and a run receives it by bide.ReceiveEvent:

  endpoints:
    - source: stripe
      scheme: stripe               # standard, github, stripe, slack, none
      secret: ${env:STRIPE_SECRET} # or a list, while it is replaced
      key: body.data.object.id     # CEL: what the event is about
  verifiers:                       # for webhooks made with bide.VerifiedBy
    - {name: render, scheme: standard, secret: "${env:RENDER_SECRET}"}`,
		Args: arguments(cobra.NoArgs, "bide serve --db FILE|postgres://... [flags]"),
		RunE: func(c *cobra.Command, _ []string) error {
			if t.db == "" {
				return usage("--db is missing; name a file or postgres://...")
			}
			if (cfg.TLSCert == "") != (cfg.TLSKey == "") {
				return usage("--tls-cert and --tls-key belong together; give both or neither")
			}
			return serve(c, t, cfg, level, "bide serve")
		},
	}
	flags := c.Flags()
	flags.SortFlags = false
	flags.StringVar(&t.db, "db", "", "`FILE` that keeps the runs, or postgres://...")
	flags.StringVar(&cfg.Addr, "addr", defaultAddr, "where to listen")
	flags.StringVar(&cfg.PublicURL, "public-url", "", "`URL` at which the world reaches the server")
	flags.StringVar(&cfg.TLSCert, "tls-cert", "", "`FILE` with the certificate, in PEM")
	flags.StringVar(&cfg.TLSKey, "tls-key", "", "`FILE` with its key, in PEM")
	flags.StringSliceVar(&cfg.Hosts, "host", nil, "`NAMES` that a proxy passes on as the host")
	flags.StringSliceVar(&cfg.Origins, "origin", nil, "`ORIGINS`, https://app.example.com, whose pages may use the server")
	flags.BoolVar(&cfg.ReadOnly, "read-only", false, "refuse all that changes anything")
	flags.BoolVar(&cfg.AllowPrivate, "allow-private", false, "let webhooks and probe loops reach private addresses too")
	setting(flags, "db", "addr", "public-url", "tls-cert", "tls-key", "host", "origin", "read-only", "allow-private")
	logLevelFlag(c, &level)
	return c
}
