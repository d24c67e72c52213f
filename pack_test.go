package bide_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/bide-dev/bide"
)

// Nothing of what a run waits for is lost when a store packs it.
func TestPackWaits(t *testing.T) {
	at := time.UnixMicro(1_700_000_000_123_456).UTC()
	waits := []bide.Wait{{}, {Path: "1.2", Kind: bide.KindPoll, Name: "n", Since: at, Until: at.Add(time.Hour), NextAt: at.Add(time.Minute), Attempt: 3,
		Streak: 2, LastValue: json.RawMessage(`{"a":1.50}`), LastError: &bide.Failure{Message: "m"}, LastErrAt: at, Details: json.RawMessage(`[1]`),
		Poll: &bide.PollState{}, Loop: &bide.LoopState{}}}
	for v, i := reflect.ValueOf(waits[1]), 0; i < v.NumField(); i++ {
		if v.Field(i).IsZero() {
			t.Errorf("%s is not tried", v.Type().Field(i).Name)
		}
	}
	got, err := bide.UnpackWaits(bide.PackWaits(waits))
	if err != nil || !reflect.DeepEqual(got, waits) {
		t.Errorf("got %+v, %v, want %+v", got, err, waits)
	}
	if packed := bide.PackWaits(nil); packed != nil {
		t.Errorf("nothing makes %s", packed)
	}
	var codec *bide.CodecError
	if _, err := bide.UnpackWaits([]byte(`[{"k":"x"}]`)); !errors.As(err, &codec) {
		t.Errorf("got %v", err)
	}
}

// A query selects by each of its fields.
func TestMatch(t *testing.T) {
	run := bide.Run{ID: "order-1", Workflow: "w", Queue: "q", Parent: "p", State: bide.Failed, Labels: map[string]string{"a": "", "b": "x"}}
	type labels = map[string]string
	states := []bide.State{bide.Queued, bide.Failed}
	for _, q := range []bide.Query{{}, {IDPrefix: "order-"}, {Workflow: "w", Queue: "q", Parent: "p"}, {States: states}, {Labels: labels{"a": "", "b": "x"}}, {Before: "z", Limit: 1}} {
		if !q.Match(&run) {
			t.Errorf("%+v does not select the run", q)
		}
	}
	for _, q := range []bide.Query{{IDPrefix: "Order"}, {Workflow: "v"}, {Queue: "w"}, {Parent: "order-1"}, {States: states[:1]}, {Labels: labels{"c": ""}}, {Labels: labels{"b": "y"}}} {
		if q.Match(&run) {
			t.Errorf("%+v selects the run", q)
		}
	}
}
