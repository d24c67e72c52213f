package bide

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
)

// Detached is a [StartOption] for children: the child goes on when its parent
// ends, instead of being canceled.
type Detached struct{}

func (Detached) start(r *NewRun) error { r.Detached = true; return nil }

// ChildRun is a child that was started.
type ChildRun[Out any] struct {
	id string
}

// Child starts a run of the workflow as a child of this one and waits for its
// result. Errors are those of [StartChild] and [ChildRun.Result].
func Child[In, Out any](ctx Context, w *Workflow[In, Out], in In, opts ...StartOption) (Out, error) {
	c, err := StartChild(ctx, w, in, opts...)
	if err != nil {
		var zero Out
		return zero, err
	}
	return c.Result(ctx)
}

// StartChild starts a run of the workflow as a child of this one, in the commit
// that records it. Its id is that of the parent and the place in it, unless [ID]
// is given; its queue is the parent's unless [Queue] is. When the parent ends,
// the child is canceled, unless [Detached].
//
// It returns an [InvalidError] or [CodecError] for bad input, [ErrCanceled] when
// the run is canceled. An id that is taken shows at Result, as a [ConflictError].
func StartChild[In, Out any](ctx Context, w *Workflow[In, Out], in In, opts ...StartOption) (*ChildRun[Out], error) {
	v, err := begin(ctx, KindChild, w.def.name, true)
	if err != nil {
		return nil, err
	}
	if r := v.result(); r != nil {
		data, err := v.replay(r)
		if err != nil {
			return nil, err
		}
		var started childStart
		if err := json.Unmarshal(data, &started); err != nil {
			return nil, &CodecError{Field: "child", Message: err.Error()}
		}
		v.t.noteChild(v.path, started.Child)
		return &ChildRun[Out]{id: started.Child}, nil
	}
	t := v.t
	run, err := w.newRun(in, opts)
	if err == nil && run.Conflict != Existing {
		err = &InvalidError{Field: "conflict policy", Reason: "a child's id can only be Existing; choose an id of its own"}
	}
	if err != nil {
		_, err = v.finish(Record{Error: NewFailure(err)}, nil)
		return nil, err
	}
	if run.ID == "" {
		run.ID = t.run.ID + ":" + v.path
		if g := t.run.Generation; g > 0 {
			run.ID += "~" + strconv.Itoa(g)
		}
	}
	if run.Queue == "" {
		run.Queue = t.run.Queue
	}
	if run.Trace == "" {
		run.Trace = t.run.Trace
	}
	data, _ := json.Marshal(childStart{Child: run.ID})
	t.noteChild(v.path, run.ID)
	t.mu.Lock()
	t.start = append(t.start, run)
	v.recordLocked(Record{Kind: KindChild, Data: data, At: t.now()})
	v.endLocked()
	t.mu.Unlock()
	return &ChildRun[Out]{id: run.ID}, nil
}

type childStart struct {
	Child string `json:"child"`
}

func (t *turn) noteChild(path, id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.children == nil {
		t.children = map[string]string{}
	}
	t.children[path] = id
}

// noteChildren does it for the children that a race, whose branches do not run
// again, has started.
func (t *turn) noteChildren(prefix string) {
	for path, kept := range t.kept {
		var c childStart
		if r := kept[0]; strings.HasPrefix(path, prefix) && r.Kind == KindChild && r.Error == nil && json.Unmarshal(r.Data, &c) == nil && c.Child != "" {
			t.noteChild(path, c.Child)
		}
	}
}

// childrenWithin returns the children started below a path, for a race's loser.
func (t *turn) childrenWithin(prefix string) (ids []string) {
	for path, id := range t.children {
		if strings.HasPrefix(path, prefix) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// ID returns the child's run id.
func (c *ChildRun[Out]) ID() string { return c.id }

// Result waits for the child to end. A child that did not succeed gives a
// [RunError] with its state and error; a taken id gives a [ConflictError].
func (c *ChildRun[Out]) Result(ctx Context) (Out, error) {
	data, err := awaitChild(ctx, c.id)
	if err != nil {
		var zero Out
		return zero, err
	}
	return decode[Out]("result of child ", c.id, data)
}

func awaitChild(ctx Context, id string) ([]byte, error) {
	v, err := begin(ctx, KindChild, id, true)
	if err != nil {
		return nil, err
	}
	if r := v.result(); r != nil {
		return v.replay(r)
	}
	state, resumed := v.keptWait()
	if !resumed {
		state = Wait{Kind: KindChild, Since: v.began}
	}
	match := func(m *Message) bool { return m.Op == OpChildEnded && m.Name == id || v.acts(m) }
	for {
		why, m := v.wait(state, state.Until, match)
		if why == whyCanceled {
			v.cancelNow()
			return nil, ErrCanceled
		}
		switch m.Op {
		case OpChildEnded:
			return v.finish(Record{Data: m.Data, Error: m.Error, At: later(m.At, v.clock()), Took: v.t.now().Sub(state.Since)}, m)
		case OpCompleteWait, OpFailWait:
			return v.settled(m, 0)
		case OpExtendWait:
			v.note(Record{Kind: KindExtended}, m, nil)
		default:
			v.note(Record{Kind: KindChecked}, m, nil)
		}
	}
}
