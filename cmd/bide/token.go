package main

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/server"
)

func newToken() *cobra.Command {
	c := &cobra.Command{
		Use:   "token",
		Short: "Make, list and revoke API keys",
		Args:  arguments(cobra.NoArgs, "bide token create|list|revoke"),
		RunE:  func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(newTokenCreate(), newTokenList(), newTokenRevoke())
	return c
}

func newTokenCreate() *cobra.Command {
	var scopes []string
	var ttl time.Duration
	c := &cobra.Command{
		Use:   "create [NAME]",
		Short: "Make an API key and print it, once",
		Long: `Make an API key and print it. It is shown this once: the store keeps a hash. From the
first key on a server on this store asks for one. NAME says who uses it; without it,
that is you.

Scopes, each with those before it: read looks; write starts and directs runs; worker
takes runs and works on them; admin makes keys and purges.`,
		Example: "  bide token create ci --scope write --ttl 720h --db bide.db",
		Args:    arguments(cobra.MaximumNArgs(1), "bide token create [NAME] --scope SCOPE"),
	}
	t, f := targetFlags(c), formatFlag(c)
	c.Flags().StringSliceVar(&scopes, "scope", nil, "`SCOPES` of read, write, worker, admin")
	c.Flags().DurationVar(&ttl, "ttl", 0, "how long it holds; 0 is for ever")
	c.RunE = func(c *cobra.Command, args []string) error {
		name := whoami()
		if len(args) > 0 {
			name = args[0]
		}
		if len(scopes) == 0 {
			return usage("--scope is missing; give read, write, worker or admin")
		}
		store, err := t.write(c.Context(), true)
		if err != nil {
			return err
		}
		defer store.Close()
		var list []server.Scope
		for _, s := range scopes {
			list = append(list, server.Scope(s))
		}
		others, err := server.Keys(c.Context(), store)
		if err != nil {
			return err
		}
		secret, key, err := server.CreateKey(c.Context(), store, name, list, ttl)
		if invalid, ok := errors.AsType[*bide.InvalidError](err); ok && !isRefused(err) {
			return usage("--%s: %s", strings.TrimSuffix(invalid.Field, "s"), invalid.Reason)
		} else if err != nil {
			return err
		}
		if *f != table {
			return printJSON(c.OutOrStdout(), struct {
				server.Key
				Secret string `json:"secret"`
			}{key, secret})
		}
		show := newScreen(c.ErrOrStderr())
		show.say("Key %s of %s; it is shown this once. Give it as BIDE_TOKEN.", key.ID, key.Name)
		if len(others) == 0 {
			show.say("It is the first: from now on a server on this store asks everyone for a key.")
		}
		_, err = fmt.Fprintln(c.OutOrStdout(), secret)
		return err
	}
	return c
}

// whoami is who uses this machine, as a key's name.
func whoami() string {
	host, _ := os.Hostname()
	name := "someone"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	return name + "@" + host
}

func newTokenList() *cobra.Command {
	c := &cobra.Command{
		Use:   "list",
		Short: "List the API keys, without their secrets",
		Args:  arguments(cobra.NoArgs, "bide token list"),
	}
	t, f := targetFlags(c), formatFlag(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		store, err := t.read(c.Context())
		if err != nil {
			return err
		}
		defer store.Close()
		keys, err := server.Keys(c.Context(), store)
		if err != nil {
			return err
		}
		if len(keys) == 0 && *f == table {
			newScreen(c.ErrOrStderr()).say("No keys: a server on this store serves its own machine only.")
		}
		return printAll(c.OutOrStdout(), *f, keys, "KEY\tNAME\tSCOPES\tCREATED\tLAST USED\tEXPIRES", func(k server.Key) string {
			var scopes []string
			for _, s := range k.Scopes {
				scopes = append(scopes, string(s))
			}
			return cells(k.ID, k.Name, strings.Join(scopes, ","), dateOf(k.CreatedAt), dateOf(lastUse(&k)), dateOf(k.ExpiresAt))
		})
	}
	return c
}

// lastUse is when a key was last used. That is noted to the hour, which may have
// begun before there was the key.
func lastUse(k *server.Key) time.Time {
	if !k.LastUsedAt.IsZero() && k.LastUsedAt.Before(k.CreatedAt) {
		return k.CreatedAt
	}
	return k.LastUsedAt
}

func dateOf(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Local().Format("2006-01-02 15:04")
}

func newTokenRevoke() *cobra.Command {
	c := &cobra.Command{
		Use:   "revoke KEY",
		Short: "Revoke an API key; servers heed it within two seconds",
		Args:  arguments(cobra.ExactArgs(1), "bide token revoke KEY"),
	}
	t := targetFlags(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		store, err := t.write(c.Context(), false)
		if err != nil {
			return err
		}
		defer store.Close()
		err = server.RevokeKey(c.Context(), store, args[0])
		if errors.Is(err, bide.ErrNotFound) {
			return said(fmt.Sprintf("no key %q; %s shows what there is", args[0], t.command("token", "list")), err)
		} else if err != nil {
			return err
		}
		newScreen(c.ErrOrStderr()).say("%s: revoked", args[0])
		return nil
	}
	return c
}
