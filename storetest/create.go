package storetest

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/bide-dev/bide"
)

// big is JSON of exactly the largest size allowed, with what a careless decoder
// would change: a number beyond 2^53, odd spacing, escapes, characters that
// encoding/json likes to escape.
var big = func() json.RawMessage {
	head := `{ "n":9007199254740993,  "f":1.10e+400, "s":"\u00e9<&>é\/", "pad":"`
	return json.RawMessage(head + strings.Repeat("x", bide.MaxPayload-len(head)-2) + `"}`)
}()

var createCases = []testCase{
	{name: "create/made-id", protects: "a run without an id of the user's gets a unique one, by which it is found again",
		run: func(k *kit) {
			seen := map[string]bool{}
			for range 3 {
				for _, id := range k.create(run(""), run(""), run("")) {
					if id == "" || seen[id] {
						k.Fatalf("the store made the id %q after %v", id, seen)
					}
					seen[id] = true
					r := k.get(id)
					equal(k, "id read back", r.ID, id)
					equal(k, "state", r.State, bide.Queued)
				}
			}
		}},
	{name: "create/reads-back", protects: "what a run was started with is kept as it was given, and handed to the worker that claims it",
		run: func(k *kit) {
			at := now()
			n := run("Ä/run:1~2")
			n.Labels = map[string]string{"team": "x", `a."b'%`: "ü", "": "empty key", "empty": ""}
			n.Deadline = at.Add(time.Hour + 7*time.Microsecond)
			n.Messages = []bide.Message{message("a", `1`), message("b", `9007199254740993`)}
			k.create(n)
			k.create(run("other"))
			if k.get("other").Seed == k.get(n.ID).Seed {
				k.Error("two runs have the same seed")
			}
			c := k.turn(n.ID)
			for what, r := range map[string]bide.Run{"Run": k.get(n.ID), "Claim": c.Run} {
				equal(k, what+": workflow", r.Workflow, workflow)
				equal(k, what+": queue", r.Queue, n.Queue)
				equal(k, what+": input", string(r.Input), string(n.Input))
				equal(k, what+": labels", r.Labels, n.Labels)
				sameTime(k, what+": deadline", r.Deadline, n.Deadline)
				sameTime(k, what+": created", r.CreatedAt, at)
				equal(k, what+": generation", r.Generation, 0)
				equal(k, what+": seed", r.Seed, k.get(n.ID).Seed)
				if !r.StartedAt.IsZero() || !r.EndedAt.IsZero() || r.Error != nil || r.Result != nil || r.Parent != "" {
					k.Errorf("%s: a new run has marks of a later life: %+v", what, r)
				}
			}
			equal(k, "history", len(c.History), 0)
			equal(k, "interrupted", c.Interrupted, false)
			equal(k, "inbox", names(c.Inbox), []string{"a", "b"})
			equal(k, "message data", string(c.Inbox[1].Data), `9007199254740993`)
			sameTime(k, "message time", c.Inbox[0].At, at)
		}},
	{name: "create/ids-are-exact", protects: "ids that differ only in case, or look alike to a pattern, are different runs",
		run: func(k *kit) {
			ids := []string{"a", "A", "a_", "a%", "aé", "ae", "a'", `a"`, "a*", "1", "01", "1.0", strings.Repeat("l", 255)}
			for _, id := range ids {
				k.create(run(id))
			}
			for _, id := range ids {
				equal(k, "input of "+id, string(k.get(id).Input), string(run(id).Input))
			}
		}},
	{name: "create/largest-input", protects: "2 MiB of input come back byte by byte, big numbers and spacing included",
		run: func(k *kit) {
			n := run("big")
			n.Input = big
			n.Messages = []bide.Message{{Op: bide.OpSignal, Name: "m", Data: big}}
			k.create(n)
			equal(k, "input", string(k.get("big").Input), string(big))
			c := k.turn("big")
			equal(k, "claimed input", string(c.Run.Input), string(big))
			equal(k, "message", string(c.Inbox[0].Data), string(big))
			k.commit(c, bide.Batch{Records: []bide.Record{{Path: "1", Kind: bide.KindStep, Data: big, At: now()}}, Next: bide.Done{Result: big}})
			equal(k, "record", string(k.history("big")[0].Data), string(big))
			equal(k, "result", string(k.get("big").Result), string(big))
			created, err := k.s.Create(k.ctx(), []bide.NewRun{n}) // equal inputs are found equal
			k.ok(err)
			k.ok(created[0].Err)
		}},
	{name: "create/existing", protects: "the same start twice is one run, whatever has become of it meanwhile",
		run: func(k *kit) { k.conflicts(bide.Existing) }},
	{name: "create/fail", protects: "Fail refuses a taken id in every state, and leaves the run that has it alone",
		run: func(k *kit) { k.conflicts(bide.Fail) }},
	{name: "create/replace", protects: "Replace gives the id to a new run and keeps the old one, terminated if it lived, under another id",
		run: func(k *kit) { k.conflicts(bide.Replace) }},
	{name: "create/conflict", protects: "the same id with another input or workflow is an error, not someone else's result",
		run: func(k *kit) {
			k.create(run("a"))
			for what, change := range map[string]func(*bide.NewRun){
				"input":    func(r *bide.NewRun) { r.Input = json.RawMessage(`{"of":"b"}`) },
				"workflow": func(r *bide.NewRun) { r.Workflow = "other" },
			} {
				n := run("a")
				change(&n)
				created, err := k.s.Create(k.ctx(), []bide.NewRun{n})
				k.ok(err)
				equal(k, "new with another "+what, created[0].New, false)
				isAs[*bide.ConflictError](k, created[0].Err)
			}
			equal(k, "runs", len(k.query(bide.Query{})), 1)
		}},
	{name: "create/existing-sends-nothing", protects: "a start that finds its run does not put the first messages into it again",
		run: func(k *kit) {
			n := run("a")
			n.Messages = []bide.Message{message("hello", `1`)}
			k.create(n, n)
			k.create(n)
			equal(k, "inbox", names(k.turn("a").Inbox), []string{"hello"})
		}},
	{name: "create/many", protects: "in a call for many runs one that fails does not fail the others, and answers come in order",
		run: func(k *kit) {
			k.create(run("taken"))
			runs := []bide.NewRun{run("a"), run("taken"), run("b"), run("a"), run("")}
			runs[1].Conflict = bide.Fail
			created, err := k.s.Create(k.ctx(), runs)
			k.ok(err)
			if len(created) != 5 {
				k.Fatalf("5 runs, %d answers", len(created))
			}
			isAs[*bide.ConflictError](k, created[1].Err)
			for i, isNew := range []bool{true, false, true, false, true} {
				equal(k, fmt.Sprintf("New of answer %d", i), created[i].New, isNew)
				if i != 1 {
					k.ok(created[i].Err)
				}
			}
			equal(k, "the same id twice in a call", created[3].ID, "a")
			equal(k, "runs", len(k.query(bide.Query{})), 4)
			k.turn("a")
			k.turn("b")
			none, err := k.s.Create(k.ctx(), nil)
			k.ok(err)
			equal(k, "answers to no runs", len(none), 0)
		}},
	{name: "create/start-at", protects: "a run with a start time is not handed out before it, and is when it has come",
		run: func(k *kit) {
			n := run("later")
			n.StartAt = now().Add(time.Minute)
			k.create(n)
			began := time.Now()
			k.idle(asks("w", "later"), time.Minute-time.Millisecond)
			k.take(asks("w", "later"), 1)
			if d := time.Since(began); d < time.Minute || d > time.Minute+soon {
				k.Errorf("handed out after %v, want 1m", d)
			}
			n = run("overdue")
			n.StartAt = now().Add(-time.Hour)
			k.create(n)
			k.state("overdue", bide.Queued)
			k.turn("overdue")
		}},
	{name: "create/start-at-with-message", protects: "a run that was started with a delay and a first message starts by its time at the latest, with the message in hand",
		run: func(k *kit) {
			n := run("later")
			n.StartAt = now().Add(time.Minute)
			n.Messages = []bide.Message{message("hello", `1`)}
			k.create(n)
			c, err := k.claim(asks("w", "later"), time.Minute+soon)
			k.ok(err)
			equal(k, "inbox", names(c[0].Inbox), []string{"hello"})
		}},
}

// conflicts starts a run again in each state of the run that has its id.
func (k *kit) conflicts(policy bide.Conflict) {
	for _, s := range states {
		id := "was-" + s.String()
		c := k.inState(id, s)
		before := k.get(id)
		n := run(id)
		n.Conflict = policy
		created, err := k.s.Create(k.ctx(), []bide.NewRun{n})
		k.ok(err)
		got := created[0]
		equal(k, "New of "+id, got.New, policy == bide.Replace)
		if policy != bide.Replace {
			if policy == bide.Fail {
				isAs[*bide.ConflictError](k, got.Err)
			} else {
				k.ok(got.Err)
				equal(k, "id", got.ID, id)
			}
			sameJSON(k, id+" after the second start", k.get(id), before)
			continue
		}
		k.ok(got.Err)
		equal(k, "id", got.ID, id)
		if s != bide.Running { // else the old turn's worker may have it already
			k.state(id, bide.Queued)
		}
		equal(k, "history of the new "+id, len(k.history(id)), 0)

		old := k.query(bide.Query{Queue: id})
		if len(old) != 2 || old[0] != id || old[1] == id {
			k.Fatalf("runs of queue %q, newest first: %q; want the new one and the old one under another id", id, old)
		}
		was := k.get(old[1])
		want := s
		if !s.Ended() {
			want = bide.Terminated
		}
		equal(k, "state of the replaced "+id, was.State, want)
		if was.EndedAt.IsZero() {
			k.Errorf("the replaced %s has no end time", id)
		}
		if s != bide.Queued {
			equal(k, "history of the replaced "+id, paths(k.history(old[1])), []string{"1"})
			k.refused(c.Lease)
			k.leave(c.Worker)
		}
		fresh := k.take(asks("another worker of "+id, id), 1)[0]
		equal(k, "history at claim", len(fresh.History), 0)
		equal(k, "inbox at claim", len(fresh.Inbox), 0)
		equal(k, "interrupted", fresh.Interrupted, false)
		k.commit(fresh, bide.Batch{Next: bide.Done{}})
	}
}
