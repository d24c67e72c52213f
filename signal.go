package bide

import "time"

type receiveConfig struct{ timeout *time.Duration }

func (d Timeout) receive(c *receiveConfig) { c.timeout = (*time.Duration)(&d) }

// Receive waits for a signal of the name and returns its value. Signals sent
// before the wait and after it are the same case; several of one name are
// received in the order in which they came. It returns a [TimeoutError] after
// [Timeout] (no default), [ErrCanceled] when the run is canceled, or a
// [CodecError] when the value does not fit T; the signal is taken up then too.
func Receive[T any](ctx Context, name string, opts ...ReceiveOption) (T, error) {
	data, err := receive(ctx, inbound{kind: KindReceive, name: name, signal: name}, opts)
	if err != nil {
		var zero T
		return zero, err
	}
	return decode[T]("signal ", name, data)
}

// inbound is what a verb waits for from outside.
type inbound struct {
	kind   Kind
	name   string
	signal string // of the messages
	hook   *hook  // that they come through, if they do
	event  string // that they are
}

func receive(ctx Context, in inbound, opts []ReceiveOption) ([]byte, error) {
	v, err := begin(ctx, in.kind, in.name, true)
	if err != nil {
		return nil, err
	}
	if r := v.result(); r != nil {
		return v.replay(r)
	}
	var c receiveConfig
	for _, o := range opts {
		o.receive(&c)
	}
	if c.timeout != nil && *c.timeout <= 0 {
		return v.finish(Record{Error: NewFailure(&InvalidError{Field: "Timeout", Reason: "must be above 0; leave it out for none"})}, nil)
	}
	state, resumed := v.keptWait()
	if !resumed {
		state = Wait{Kind: in.kind, Since: v.began}
		if c.timeout != nil {
			state.Until = after(v.began, *c.timeout)
		}
		if in.event != "" {
			v.listen(in.event)
		}
	}
	v.waitsOn(in.hook)
	match := func(m *Message) bool { return m.Op == OpSignal && m.Name == in.signal || v.acts(m) }
	for {
		why, m := v.wait(state, state.Until, match)
		switch why {
		case whyCanceled:
			v.cancelNow()
			return nil, ErrCanceled
		case whyTimer:
			err := &TimeoutError{What: v.String(), After: state.Until.Sub(state.Since)}
			return v.finish(Record{Error: NewFailure(err), At: state.Until}, nil)
		}
		switch m.Op {
		case OpSignal: // there for the taking since it came, or since we asked
			v.unlisten(in.event)
			return v.finish(Record{Data: m.Data, At: later(m.At, v.clock()), Took: v.t.now().Sub(state.Since)}, m)
		case OpCompleteWait, OpFailWait:
			return v.settled(m, 0)
		case OpExtendWait:
			if !state.Until.IsZero() {
				state.Until = after(state.Until, extension(m))
			}
			v.note(Record{Kind: KindExtended}, m, &state)
		default:
			v.note(Record{Kind: KindChecked}, m, &state)
		}
	}
}

// waitsOn notes the hook that the verb waits on, so that it can be told over
// should the verb lose a race.
func (v *verb) waitsOn(h *hook) {
	if h == nil {
		return
	}
	t := v.t
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.hooks == nil {
		t.hooks = map[string]*hook{}
	}
	t.hooks[v.path] = h
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
