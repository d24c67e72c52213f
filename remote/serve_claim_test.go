package remote_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/remote"
	"github.com/bide-dev/bide/sqlite"
)

// unhurried is a store that hands out what comes while it is told to stop.
type unhurried struct{ bide.Store }

func (u unhurried) Claim(ctx context.Context, c bide.Claim) ([]bide.Claimed, error) {
	late, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(time.Second, cancel) })()
	return u.Store.Claim(late, c)
}

// What is handed to a worker that has hung up before it ever had anything, such as
// one that stops as it asks, goes to others at once: nobody renews its lease, but it
// would last.
func TestClaimOfOneWhoHasGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, err := sqlite.Open(":memory:")
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		h := muxOf(remote.NewHandler(unhurried{store}))
		ctx, hangUp := context.WithTimeout(t.Context(), 5*time.Second)
		defer hangUp()
		r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/bide.v1.Store/Claim",
			strings.NewReader(`{"client":"c","worker":"gone","queues":["q"],"workflows":["w"],"max":"10","ttl":"30000000000","number":"1"}`))
		r.Header.Set("Content-Type", "application/json")
		asked := make(chan struct{})
		go func() {
			defer close(asked)
			h.ServeHTTP(httptest.NewRecorder(), r)
		}()
		time.Sleep(5*time.Second + 500*time.Millisecond)
		if _, err := store.Create(t.Context(), []bide.NewRun{{ID: "r", Workflow: "w", Queue: "q", Input: []byte("1")}}); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		claimed, err := store.Claim(t.Context(), bide.Claim{Worker: "other", Queues: []string{"q"}, Workflows: []string{"w"}, Max: 1, TTL: time.Minute})
		if took := time.Since(began); err != nil || len(claimed) != 1 || claimed[0].Interrupted || took > time.Second {
			t.Errorf("after %v: %+v, %v", took, claimed, err)
		}
		<-asked
	})
}
