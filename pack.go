package bide

import (
	"encoding/json"
	"time"
)

// packedWait is a [Wait] as stores keep it: short names and times as numbers, since
// there may be millions.
type packedWait struct {
	Path      string          `json:"p,omitempty"`
	Kind      int8            `json:"k"`
	Name      string          `json:"n,omitempty"`
	Since     int64           `json:"s,omitempty"`
	Until     int64           `json:"u,omitempty"`
	NextAt    int64           `json:"x,omitempty"`
	Attempt   int             `json:"a,omitempty"`
	Streak    int             `json:"r,omitempty"`
	LastValue json.RawMessage `json:"v,omitempty"`
	LastError *Failure        `json:"e,omitempty"`
	LastErrAt int64           `json:"t,omitempty"`
	Details   json.RawMessage `json:"d,omitempty"`
	Poll      *PollState      `json:"o,omitempty"`
	Loop      *LoopState      `json:"l,omitempty"`
}

// PackWaits is what a [Store] may keep of what a run waits for, as JSON; nil for
// nothing. Times are kept to the microsecond.
func PackWaits(waits []Wait) []byte {
	if len(waits) == 0 {
		return nil
	}
	list := make([]packedWait, len(waits))
	for i, w := range waits {
		list[i] = packedWait{w.Path, int8(w.Kind), w.Name, packTime(w.Since), packTime(w.Until), packTime(w.NextAt),
			w.Attempt, w.Streak, w.LastValue, w.LastError, packTime(w.LastErrAt), w.Details, w.Poll, w.Loop}
	}
	data, err := json.Marshal(list)
	if err != nil { // a value that is no JSON: the run shows nothing of it
		return nil
	}
	return data
}

// UnpackWaits reads what [PackWaits] made, or returns a [CodecError].
func UnpackWaits(data []byte) ([]Wait, error) {
	if data == nil {
		return nil, nil
	}
	var list []packedWait
	if err := json.Unmarshal(data, &list); err != nil {
		return nil, &CodecError{Field: "waiting", Message: err.Error()}
	}
	waits := make([]Wait, len(list))
	for i, w := range list {
		waits[i] = Wait{Path: w.Path, Kind: Kind(w.Kind), Name: w.Name, Since: unpackTime(w.Since), Until: unpackTime(w.Until),
			NextAt: unpackTime(w.NextAt), Attempt: w.Attempt, Streak: w.Streak, LastValue: w.LastValue,
			LastError: w.LastError, LastErrAt: unpackTime(w.LastErrAt), Details: w.Details, Poll: w.Poll, Loop: w.Loop}
	}
	return waits, nil
}

func packTime(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

func unpackTime(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(us).UTC()
}
