package server

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/bide-dev/bide"
)

// Scope is what an API key may do.
type Scope string

// The scopes. Each holds the ones before it.
const (
	ScopeRead   Scope = "read"   // look at runs, loops, metrics
	ScopeWrite  Scope = "write"  // start, signal, cancel, and whatever else changes runs and loops
	ScopeWorker Scope = "worker" // work: the whole store but for API keys and purges, with all inputs and the secrets of webhooks
	ScopeAdmin  Scope = "admin"  // API keys and purges
)

var scopes = []Scope{ScopeRead, ScopeWrite, ScopeWorker, ScopeAdmin}

// Key is an API key, without its secret.
type Key struct {
	ID         string    `json:"id"` // stands in the secret too, so that one can be told by the other
	Name       string    `json:"name"`
	Scopes     []Scope   `json:"scopes"`
	CreatedAt  time.Time `json:"created_at"`
	ExpiresAt  time.Time `json:"expires_at,omitzero"`   // zero: never
	LastUsedAt time.Time `json:"last_used_at,omitzero"` // to the hour
}

// keptKey is a key as the store has it: with a hash in the place of the secret.
// SHA-256 is enough: nobody tries out 256 random bits, however fast the hash is,
// and a slow one would have to be computed on each request.
type keptKey struct {
	Key
	Hash []byte `json:"hash"`

	version int64
}

const (
	factKey   = "api_key"
	keyPrefix = "bide_"

	keyIDLen     = 8
	keySecretLen = 32 // bytes
)

// CreateKey makes an API key. The secret is shown here and never again: the store
// keeps a hash. A ttl of 0 is for ever. From the first key on, a server on this
// store asks for one. It returns an [bide.InvalidError] for a name that is empty or
// above 100 bytes, for scopes that are none, and for a negative ttl.
func CreateKey(ctx context.Context, store bide.Store, name string, has []Scope, ttl time.Duration) (secret string, _ Key, err error) {
	if name == "" || len(name) > 100 {
		return "", Key{}, &bide.InvalidError{Field: "name", Reason: "say in 1 to 100 bytes who will use the key"}
	}
	if ttl < 0 {
		return "", Key{}, &bide.InvalidError{Field: "ttl", Reason: "is negative; use 0 for a key that does not expire"}
	}
	if len(has) == 0 {
		return "", Key{}, &bide.InvalidError{Field: "scopes", Reason: "is empty; give read, write, worker or admin"}
	}
	for _, s := range has {
		if !slices.Contains(scopes, s) {
			return "", Key{}, &bide.InvalidError{Field: "scopes", Reason: fmt.Sprintf("%q is none of read, write, worker and admin", string(s))}
		}
	}
	k := keptKey{Key: Key{Name: name, Scopes: slices.Compact(slices.Sorted(slices.Values(has))), CreatedAt: time.Now().UTC().Truncate(time.Second)}}
	if ttl > 0 {
		k.ExpiresAt = k.CreatedAt.Add(ttl)
	}
	for {
		var random [5 + keySecretLen]byte
		_, _ = rand.Read(random[:]) // never fails
		k.ID = strings.ToLower(base32.StdEncoding.EncodeToString(random[:5]))
		secret = keyPrefix + k.ID + "_" + base64.RawURLEncoding.EncodeToString(random[5:])
		k.Hash = hashKey(secret)
		// An expired key stays until it is revoked: a server that has seen its last
		// key lapse must not stand open for that.
		if err := k.put(ctx, store); !errors.Is(err, bide.ErrFactChanged) {
			return secret, k.Key, err
		}
	}
}

func (k *keptKey) put(ctx context.Context, store bide.Store) error {
	value, err := json.Marshal(k)
	if err != nil {
		return err
	}
	return store.Commit(ctx, bide.Lease{}, bide.Batch{Facts: []bide.Fact{{Kind: factKey, Key: k.ID, Version: k.version, Value: value}}})
}

// Keys returns the API keys of the store, the oldest first, those that have
// expired too.
func Keys(ctx context.Context, store bide.Store) ([]Key, error) {
	kept, err := readKeys(ctx, store)
	if err != nil {
		return nil, err
	}
	keys := make([]Key, 0, len(kept))
	for _, k := range kept {
		keys = append(keys, k.Key)
	}
	slices.SortFunc(keys, func(a, b Key) int {
		if c := a.CreatedAt.Compare(b.CreatedAt); c != 0 {
			return c
		}
		return strings.Compare(a.ID, b.ID)
	})
	return keys, nil
}

// RevokeKey removes an API key. Servers heed it within two seconds. It returns
// [bide.ErrNotFound] when there is no key with the id.
func RevokeKey(ctx context.Context, store bide.Store, id string) error {
	if id == "" {
		return &bide.InvalidError{Field: "id", Reason: "is empty"}
	}
	facts, err := store.Facts(ctx, factKey, id)
	if err != nil {
		return err
	}
	if len(facts) == 0 {
		return fmt.Errorf("server: API key %q: %w", id, bide.ErrNotFound)
	}
	return store.Commit(ctx, bide.Lease{}, bide.Batch{Facts: []bide.Fact{{Kind: factKey, Key: id, Version: bide.AnyVersion}}})
}

func readKeys(ctx context.Context, store bide.Store) (map[string]*keptKey, error) {
	facts, err := store.Facts(ctx, factKey)
	if err != nil {
		return nil, err
	}
	keys := make(map[string]*keptKey, len(facts))
	for _, f := range facts {
		k := &keptKey{version: f.Version}
		if err := json.Unmarshal(f.Value, k); err != nil {
			return nil, &bide.CodecError{Field: "API key " + f.Key, Message: err.Error()}
		}
		k.ID = f.Key
		keys[f.Key] = k
	}
	return keys, nil
}

// keyID reads the id in a secret, or returns "" for what cannot be one.
func keyID(secret string) string {
	rest, ok := strings.CutPrefix(secret, keyPrefix)
	if !ok || len(rest) != keyIDLen+1+base64.RawURLEncoding.EncodedLen(keySecretLen) || rest[keyIDLen] != '_' {
		return ""
	}
	return rest[:keyIDLen]
}

func hashKey(secret string) []byte {
	sum := sha256.Sum256([]byte(secret))
	return sum[:]
}

func (k *Key) expired(now time.Time) bool { return !k.ExpiresAt.IsZero() && !now.Before(k.ExpiresAt) }

func (k *Key) may(need Scope) bool {
	return slices.ContainsFunc(k.Scopes, func(has Scope) bool {
		return slices.Index(scopes, has) >= slices.Index(scopes, need)
	})
}
