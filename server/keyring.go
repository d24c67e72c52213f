package server

import (
	"context"
	"crypto/subtle"
	"log/slog"
	"sync"
	"time"

	"github.com/bide-dev/bide"
)

const (
	keysFor  = 2 * time.Second // for how long keys that were read are gone by
	usedEach = time.Hour       // how exactly the last use of a key is kept

	keysWithin = 3 * time.Second // how long the store may take; others wait meanwhile
)

// keyring knows the keys of the store, so that a request is not a read of it.
type keyring struct {
	store    bide.Store // undecorated: what is decorated calls forget
	readOnly bool
	log      *slog.Logger

	mu   sync.Mutex
	keys map[string]*keptKey
	err  error     // of reading them
	at   time.Time // when they were read; zero: anew for the next request
}

// find returns the key with the secret, nil if there is none or it has expired,
// and whether the store has any key at all.
func (r *keyring) find(ctx context.Context, secret string) (k *Key, exist bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if r.at.IsZero() || now.Sub(r.at) >= keysFor || now.Before(r.at) {
		read, cancel := context.WithTimeout(context.WithoutCancel(ctx), keysWithin)
		r.keys, r.err = readKeys(read, r.store)
		cancel()
		r.at = time.Now()
	}
	if r.err != nil {
		return nil, false, r.err
	}
	kept := r.keys[keyID(secret)]
	if kept == nil || subtle.ConstantTimeCompare(kept.Hash, hashKey(secret)) != 1 || kept.expired(now) {
		return nil, len(r.keys) > 0, nil
	}
	r.used(ctx, kept, now)
	return new(kept.Key), true, nil
}

// used keeps when the key was used; by compare-and-set, so that it brings back
// none that is revoked meanwhile.
func (r *keyring) used(ctx context.Context, k *keptKey, now time.Time) {
	if r.readOnly || now.Sub(k.LastUsedAt) < usedEach {
		return
	}
	k.LastUsedAt = now.UTC().Truncate(usedEach)
	write, cancel := context.WithTimeout(context.WithoutCancel(ctx), keysWithin)
	defer cancel()
	if err := k.put(write, r.store); err != nil {
		r.log.Debug("cannot keep when an API key was used", "key", k.ID, "error", err)
	}
}

// forget has the keys read anew for the next request.
func (r *keyring) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.at = time.Time{}
}
