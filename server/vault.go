package server

import (
	"context"
	"errors"
	"log/slog"
	"slices"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/api"
)

// refused is why who calls may not do what needs the scope, nil if they may.
func refused(ctx context.Context, need Scope) error {
	if c := callerOf(ctx); c != nil && c.may(need) {
		return nil
	}
	return &bide.InvalidError{Field: "token", Reason: "has not the scope " + string(need)}
}

// vault is the store as other machines get it, each as far as its key goes: who
// looks may not change, who starts runs may not work on them, and who works on
// them may not make keys, which would be to give oneself any scope. It also notes
// what was changed by whom; the turns of runs stand in their histories.
type vault struct {
	bide.Store
	log      *slog.Logger
	readOnly bool
}

// mayWrite is why who calls may not change what needs the scope, nil if they may.
func (v *vault) mayWrite(ctx context.Context, need Scope) error {
	if err := refused(ctx, need); err != nil || !v.readOnly {
		return err
	}
	return bide.ErrReadOnly
}

// remotely returns the store for workers on other machines.
func (s *Server) remotely() bide.Store {
	v := &vault{Store: s.store, log: s.log, readOnly: s.cfg.ReadOnly}
	waker, _ := s.store.(bide.Waker)
	admin, administers := s.store.(bide.Admin)
	if administers {
		admin = guardedAdmin{admin, v}
	}
	return withOptions(v, waker, admin)
}

func (v *vault) audit(ctx context.Context, what, run string, err error) {
	c := callerOf(ctx)
	if c == nil {
		c = &caller{id: "unknown"}
	}
	outcome := "done"
	if err != nil {
		if outcome = bide.Code(err); outcome == "" {
			outcome = "failed"
		}
	}
	v.log.Info("audit", "key", c.id, "method", what, "run", run, "status", outcome, "remote", c.from)
}

// Create implements [bide.Store].
func (v *vault) Create(ctx context.Context, runs []bide.NewRun) ([]bide.Created, error) {
	if err := v.mayWrite(ctx, ScopeWrite); err != nil {
		v.audit(ctx, "create", "", err)
		return nil, err
	}
	created, err := v.Store.Create(ctx, runs)
	for i := range created {
		v.audit(ctx, "create", created[i].ID, errors.Join(err, created[i].Err))
	}
	return created, err
}

// Signal implements [bide.Store].
func (v *vault) Signal(ctx context.Context, run string, m bide.Message) (isNew bool, err error) {
	if err = v.mayWrite(ctx, ScopeWrite); err == nil {
		isNew, err = v.Store.Signal(ctx, run, m)
	}
	v.audit(ctx, "signal", run, err)
	return isNew, err
}

// Control implements [bide.Store].
func (v *vault) Control(ctx context.Context, run string, c bide.Command) error {
	err := v.mayWrite(ctx, ScopeWrite)
	if err == nil {
		err = v.Store.Control(ctx, run, c)
	}
	v.audit(ctx, "control", run, err)
	return err
}

// Commit implements [bide.Store].
func (v *vault) Commit(ctx context.Context, l bide.Lease, b bide.Batch) error {
	need, ofKeys := ScopeWorker, func(f bide.Fact) bool { return f.Kind == factKey }
	if slices.ContainsFunc(b.Facts, ofKeys) {
		need = ScopeAdmin
	}
	err := v.mayWrite(ctx, need)
	if err == nil {
		err = v.Store.Commit(ctx, l, b)
	}
	if need == ScopeAdmin {
		v.audit(ctx, "change of API keys", l.Run, err)
	}
	return err
}

// Claim implements [bide.Store].
func (v *vault) Claim(ctx context.Context, c bide.Claim) ([]bide.Claimed, error) {
	if err := v.mayWrite(ctx, ScopeWorker); err != nil {
		return nil, err
	}
	return v.Store.Claim(ctx, c)
}

// Facts implements [bide.Store].
func (v *vault) Facts(ctx context.Context, kind string, keys ...string) ([]bide.Fact, error) {
	if kind == factKey {
		if err := refused(ctx, ScopeAdmin); err != nil {
			return nil, err
		}
	}
	return v.Store.Facts(ctx, kind, keys...)
}

// Run implements [bide.Store].
func (v *vault) Run(ctx context.Context, id string) (bide.Run, error) {
	run, err := v.Store.Run(ctx, id)
	if run.Workflow == api.WebhookWorkflow && refused(ctx, ScopeWorker) != nil { // there is a secret in it
		run.Input = nil
	}
	return run, err
}

// guardedAdmin lets administrators only remove what cannot be brought back.
type guardedAdmin struct {
	bide.Admin
	vault *vault
}

// Purge implements [bide.Admin].
func (a guardedAdmin) Purge(ctx context.Context, run string) error {
	err := a.vault.mayWrite(ctx, ScopeAdmin)
	if err == nil {
		err = a.Admin.Purge(ctx, run)
	}
	a.vault.audit(ctx, "purge", run, err)
	return err
}
