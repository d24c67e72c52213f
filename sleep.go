package bide

import (
	"encoding/json"
	"time"
)

// Sleep waits for d, from milliseconds to months; the deadline is kept, so that
// restarts do not move it. Zero or less is over at once. It returns
// [ErrCanceled] when the run is canceled, or the error that a person gave it.
func Sleep(ctx Context, d time.Duration) error {
	return sleep(ctx, "", func(now time.Time) time.Time { return after(now, max(d, 0)) })
}

// SleepUntil waits until t, by the wall clock of the store's process. A t in the
// past is over at once. Errors are those of [Sleep].
func SleepUntil(ctx Context, t time.Time) error {
	return sleep(ctx, sleepUntil, func(time.Time) time.Time { return after(t.UTC().Round(0), 0) })
}

// sleepUntil is the name of a sleep that goes by the wall clock: should that be set
// back it ends later, where any other wait ends when its time has passed.
const sleepUntil = "until"

// sleep keeps one record, at its start, that holds the deadline.
func sleep(ctx Context, name string, deadline func(now time.Time) time.Time) error {
	v, err := begin(ctx, KindSleep, name, true)
	if err != nil {
		return err
	}
	if r := v.result(); r != nil { // settled by a person
		_, err := v.replay(r)
		return err
	}
	var until time.Time
	t := v.t
	if len(v.kept) > 0 {
		for i := range v.kept {
			if k := v.kept[i].Kind; k == KindSleep || k == KindExtended {
				if err := json.Unmarshal(v.kept[i].Data, &until); err != nil {
					return &CodecError{Field: "sleep", Message: err.Error()}
				}
			}
		}
	} else {
		until = later(deadline(v.began), v.began)
		data, _ := json.Marshal(until)
		t.mu.Lock()
		v.recordLocked(Record{Kind: KindSleep, Data: data, At: v.began})
		t.mu.Unlock()
	}
	since := v.began
	if len(v.kept) > 0 {
		since = v.kept[0].At
	}
	for {
		due := until
		if name == sleepUntil {
			due = until.Add(t.line.Ahead())
		}
		why, m := v.wait(Wait{Kind: KindSleep, Since: since, Until: until}, due, v.acts)
		switch why {
		case whyCanceled:
			v.cancelNow()
			return ErrCanceled
		case whyTimer:
			t.mu.Lock()
			v.tick(until)
			t.forgetWait(v.path)
			v.endLocked()
			t.mu.Unlock()
			return nil
		}
		switch m.Op {
		case OpCompleteWait, OpFailWait:
			_, err := v.settled(m, 0)
			return err
		case OpExtendWait:
			until = after(until, extension(m))
			data, _ := json.Marshal(until)
			v.note(Record{Kind: KindExtended, Data: data}, m, nil)
		default: // looking earlier does not make it later
			v.note(Record{Kind: KindChecked}, m, nil)
		}
	}
}
