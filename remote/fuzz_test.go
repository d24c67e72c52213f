package remote_test

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/internal/wire"
	"github.com/bide-dev/bide/remote"
	"github.com/bide-dev/bide/sqlite"
)

// paths are the RPCs; what each is sent in the seeds of the fuzzing is a request
// that it understands.
var paths = []struct {
	name string
	msg  proto.Message
}{
	{"Write", &wire.WriteRequest{Client: "c", Number: 1, Writes: []*wire.Write{
		{Write: &wire.Write_Create{Create: &wire.CreateWrite{Runs: []*wire.NewRun{{Id: "a", Workflow: "w", Queue: "q", Input: []byte("1"),
			Messages: []*wire.Message{{Op: 1, Name: "m"}}, OnEnd: &wire.NewRun{Workflow: "w"}}}}}},
		{Write: &wire.Write_Commit{Commit: &wire.CommitWrite{Run: "a", Worker: "x", Epoch: 1, Batch: &wire.Batch{
			Records: []*wire.Record{{Path: "1", Kind: 1, Data: []byte("{}")}}, Waiting: []byte(`[{"kind":"poll"}]`),
			Progress: []byte(`{"percent":1}`), Values: map[string][]byte{"v": []byte("1")},
			Next: &wire.Batch_Ended{Ended: &wire.Ended{State: 7, Error: []byte(`{"message":"m"}`)}}}}}},
		{Write: &wire.Write_Signal{Signal: &wire.SignalWrite{Run: "a", Message: &wire.Message{Op: 1, Name: "n", Data: []byte("1")}}}},
		{Write: &wire.Write_Control{Control: &wire.ControlWrite{Run: "a", Op: 3}}},
		{Write: &wire.Write_Purge{Purge: &wire.PurgeWrite{Run: "a"}}},
		{Write: &wire.Write_Watch{Watch: &wire.WatchWrite{Wake: 1, Watch: &wire.Watch{Id: 1}}}},
		{},
	}}},
	{"Claim", &wire.ClaimRequest{Client: "c", Number: 1, Worker: "x", Queues: []string{"q"}, Workflows: []string{"w"}, Max: 1, Ttl: 1e9}},
	{"StopClaim", &wire.StopClaimRequest{Client: "c", Worker: "x", Number: 1}},
	{"Wake", &wire.WakeRequest{Client: "c", Number: 1, Watches: []*wire.Watch{{Id: 1, Run: "a"}}}},
	{"Run", &wire.RunRequest{Id: "a"}},
	{"Runs", &wire.RunsRequest{States: []wire.State{1}}},
	{"History", &wire.HistoryRequest{Run: "a", Limit: 1}},
	{"Chunks", &wire.ChunksRequest{Run: "a", Limit: 1}},
	{"Facts", &wire.FactsRequest{Kind: "k"}},
	{"Status", &wire.StatusRequest{}},
}

// FuzzHandler sends any bytes to any RPC, as protobuf and as JSON: the server must
// live and the store stay of use.
func FuzzHandler(f *testing.F) {
	for i, p := range paths {
		data, err := proto.Marshal(p.msg)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(uint8(i), false, data)
	}
	f.Add(uint8(0), true, []byte(`{"client":"c","number":"1","writes":[null,{"create":{"runs":[null]}},{"commit":{}}]}`))
	store, err := sqlite.Open(":memory:")
	if err != nil {
		f.Fatal(err)
	}
	defer store.Close()
	path, h := remote.NewHandler(store)
	f.Fuzz(func(t *testing.T, rpc uint8, asJSON bool, body []byte) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
		defer cancel()
		req := httptest.NewRequestWithContext(ctx, http.MethodPost, path+paths[int(rpc)%len(paths)].name, bytes.NewReader(body))
		req.Header.Set("Content-Type", "application/proto")
		if asJSON {
			req.Header.Set("Content-Type", "application/json")
		}
		h.ServeHTTP(httptest.NewRecorder(), req)
		if _, err := store.Runs(t.Context(), bide.Query{}); err != nil {
			t.Errorf("the store, after %s: %v", paths[int(rpc)%len(paths)].name, err)
		}
	})
}

// TestMalformedWrite checks that what makes no sense is refused by itself, with
// the field's name, and what stands beside it is carried out.
func TestMalformedWrite(t *testing.T) {
	store, err := sqlite.Open(":memory:")
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	path, h := remote.NewHandler(store)
	srv := httptest.NewServer(muxOf(path, h))
	defer srv.Close()
	rpc := wire.NewStoreClient(srv.Client(), srv.URL)
	commit := func(b *wire.Batch) *wire.Write {
		return &wire.Write{Write: &wire.Write_Commit{Commit: &wire.CommitWrite{Run: "a", Worker: "x", Batch: b}}}
	}
	good := &wire.Write{Write: &wire.Write_Create{Create: &wire.CreateWrite{Runs: []*wire.NewRun{
		{Id: "good", Workflow: "w", Queue: "q", Input: []byte("1")}, {Id: "bad", Workflow: "w", Conflict: 500}}}}}
	bad := map[int]string{ // by index: the field
		1: "write", 2: "kind", 3: "waiting", 4: "record 1", 5: "state", 6: "op", 7: "message m", 8: "record 1",
	}
	resp, err := rpc.Write(t.Context(), request(&wire.WriteRequest{Client: "c", Number: 1, Writes: []*wire.Write{
		good, {},
		commit(&wire.Batch{Records: []*wire.Record{{Path: "1", Kind: -1}}}),
		commit(&wire.Batch{Waiting: []byte("{")}),
		commit(&wire.Batch{Records: []*wire.Record{{Path: "1", Kind: 1, Data: []byte("{")}}}),
		commit(&wire.Batch{Next: &wire.Batch_Ended{Ended: &wire.Ended{State: 1000}}}),
		{Write: &wire.Write_Control{Control: &wire.ControlWrite{Run: "good", Op: 128}}},
		{Write: &wire.Write_Signal{Signal: &wire.SignalWrite{Run: "good", Message: &wire.Message{Op: 1, Name: "m", Data: []byte("x")}}}},
		commit(&wire.Batch{Records: []*wire.Record{{Path: "1", Kind: 1, Data: bytes.Repeat([]byte("1"), bide.MaxPayload+1)}}}),
	}}))
	if err != nil {
		t.Fatal(err)
	}
	if n := len(resp.Msg.GetOutcomes()); n != 9 {
		t.Fatalf("%d outcomes, want 9", n)
	}
	for _, o := range resp.Msg.GetOutcomes() {
		i := int(o.GetIndex())
		if i == 0 {
			if c := o.GetCreated(); len(c) != 2 || c[0].GetError() != nil || !c[0].GetIsNew() || c[1].GetError() == nil {
				t.Errorf("created: %v, want the first and an error for the second", c)
			}
			continue
		}
		code, want := bide.Code(restored(t, o.GetError())), "invalid"
		if i == 8 {
			want = "payload_too_large"
		}
		if code != want || !bytes.Contains(o.GetError(), []byte(bad[i])) {
			t.Errorf("outcome %d: %s, want code %q and the field %q", i, o.GetError(), want, bad[i])
		}
	}
}
