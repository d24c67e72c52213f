package bide

import (
	"context"
	"fmt"
	"hash/fnv"
	"log/slog"
	"math/rand/v2"
	"time"
)

// Now returns the time by the run's own clock: when the last verb of this branch
// was over, at first when the first turn of the run, or of what it was continued
// as, began. It is the same on every replay and does not move between two verbs.
func Now(ctx Context) time.Time {
	b := ctx.scope().b
	b.t.mu.Lock()
	defer b.t.mu.Unlock()
	return b.clock
}

type rngState struct{ r *rand.Rand }

// Rand returns the branch's source of randomness: different for every run and
// branch, the same on every replay. It is not for secrets.
func Rand(ctx Context) *rand.Rand {
	b := ctx.scope().b
	if b.rng.r == nil {
		h := fnv.New64a()
		h.Write([]byte(b.prefix))
		b.rng.r = rand.New(rand.NewPCG(b.t.run.Seed, h.Sum64()))
	}
	return b.rng.r
}

// NewID returns a random UUID (version 4, RFC 9562) that is the same on every
// replay.
func NewID(ctx Context) string {
	r := Rand(ctx)
	hi, lo := r.Uint64(), r.Uint64()
	hi = hi&^0xf000 | 0x4000
	lo = lo&^(3<<62) | 2<<62
	return fmt.Sprintf("%08x-%04x-%04x-%04x-%012x", hi>>32, hi>>16&0xffff, hi&0xffff, lo>>48, lo&0xffffffffffff)
}

// Log returns a logger with the run's attributes that is silent while the branch
// replays, so that each line is logged once, or at worst again after a crash.
func Log(ctx Context) *slog.Logger {
	b := ctx.scope().b
	return slog.New(liveHandler{b.t.w.log.Handler().WithAttrs([]slog.Attr{
		slog.String("run", b.t.run.ID), slog.String("workflow", b.t.run.Workflow)}), b})
}

type liveHandler struct {
	slog.Handler
	b *branch
}

func (h liveHandler) Enabled(ctx context.Context, l slog.Level) bool {
	return !h.b.replaying() && h.Handler.Enabled(ctx, l)
}

func (h liveHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return liveHandler{h.Handler.WithAttrs(attrs), h.b}
}

func (h liveHandler) WithGroup(name string) slog.Handler {
	return liveHandler{h.Handler.WithGroup(name), h.b}
}
