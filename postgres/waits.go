package postgres

import (
	"encoding/json"

	"github.com/bide-dev/bide"
)

// storedWait is a [bide.Wait] as the file has it: short names and times as
// numbers, since there may be millions.
type storedWait struct {
	Path      string          `json:"p,omitempty"`
	Kind      int8            `json:"k"`
	Name      string          `json:"n,omitempty"`
	Since     int64           `json:"s,omitempty"`
	Until     int64           `json:"u,omitempty"`
	NextAt    int64           `json:"x,omitempty"`
	Attempt   int             `json:"a,omitempty"`
	Streak    int             `json:"r,omitempty"`
	LastValue json.RawMessage `json:"v,omitempty"`
	LastError *bide.Failure   `json:"e,omitempty"`
	LastErrAt int64           `json:"t,omitempty"`
	Details   json.RawMessage `json:"d,omitempty"`
	Poll      *bide.PollState `json:"o,omitempty"`
	Loop      *bide.LoopState `json:"l,omitempty"`
}

// packWaits is what the file keeps of a list of waits; nil for none.
func packWaits(waits []bide.Wait) []byte {
	list := make([]storedWait, len(waits))
	for i, w := range waits {
		list[i] = storedWait{w.Path, int8(w.Kind), w.Name, micros(w.Since), micros(w.Until), micros(w.NextAt),
			w.Attempt, w.Streak, w.LastValue, w.LastError, micros(w.LastErrAt), w.Details, w.Poll, w.Loop}
	}
	return object(list)
}

func unpackWaits(data []byte) ([]bide.Wait, error) {
	if data == nil {
		return nil, nil
	}
	var list []storedWait
	if err := json.Unmarshal(data, &list); err != nil {
		return nil, &bide.CodecError{Field: "waiting", Message: err.Error()}
	}
	waits := make([]bide.Wait, len(list))
	for i, w := range list {
		waits[i] = bide.Wait{Path: w.Path, Kind: bide.Kind(w.Kind), Name: w.Name, Since: clock(w.Since), Until: clock(w.Until),
			NextAt: clock(w.NextAt), Attempt: w.Attempt, Streak: w.Streak, LastValue: w.LastValue,
			LastError: w.LastError, LastErrAt: clock(w.LastErrAt), Details: w.Details, Poll: w.Poll, Loop: w.Loop}
	}
	return waits, nil
}
