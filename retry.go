package bide

import (
	"encoding/json"
	"strconv"
	"strings"
)

// RetryRecord is what a [Store] adds to the history of an ended run to carry out
// OpRetry: it names the records that the run forgets, which are the last failed
// one (for a canceled run: those that saw the cancel) and all that came of it.
// What other branches did meanwhile is kept. Nothing is erased. At is left to
// the store. children are those that the run will wait for again: the store
// retries the ones that failed, and tells the run of the ones that have ended.
func RetryRecord(history []Record, state State, failure *Failure) (r Record, children []string) {
	gone := forgottenBy(history)
	var live, failed []Record
	for _, r := range history {
		if gone[r.Seq] || r.Path == "" {
			continue
		}
		live = append(live, r)
		switch {
		case r.Kind == KindCanceled:
			failed = append(failed, r)
		case state != Canceled && r.Error != nil && r.Kind != KindPhase && r.Kind != KindRace && r.Kind != KindJoin:
			failed = []Record{r}
		}
	}
	forget := map[int64]bool{}
	for _, f := range failed {
		forgetFrom(live, f.Path, forget)
	}
	x := retried{}
	for _, r := range live {
		if forget[r.Seq] {
			x.Forgets = append(x.Forgets, r.Seq)
		}
	}
	data, _ := json.Marshal(x)
	awaited := map[string]bool{}
	for _, r := range live {
		if r.Kind == KindChild && !forget[r.Seq] {
			awaited[r.Name] = true
		}
	}
	for _, r := range live {
		var c childStart
		if r.Kind == KindChild && !forget[r.Seq] && json.Unmarshal(r.Data, &c) == nil && c.Child != "" && !awaited[c.Child] {
			children = append(children, c.Child)
		}
	}
	return Record{Kind: KindRetried, Name: state.String(), Data: data, Error: failure}, children
}

// forgetFrom marks what happened at the path, what came after it in its branch,
// and the same from each place where a branch above it saw the outcome: the
// phase or race around it, or the Get of its branch.
func forgetFrom(history []Record, path string, forget map[int64]bool) {
	for path != "" {
		prefix, n := splitPath(path)
		for _, r := range history {
			if rest, in := strings.CutPrefix(r.Path, prefix); in {
				digits, below, nested := strings.Cut(rest, ".")
				if m, _ := strconv.Atoi(digits); m > n || m == n && !nested && below == "" {
					forget[r.Seq] = true
				}
			}
		}
		path = seenAt(history, strings.TrimSuffix(prefix, "."))
	}
}

// seenAt returns the path at which the outcome of a branch was seen, "" for none.
func seenAt(history []Record, branch string) string {
	for ; branch != ""; branch, _ = cutLast(branch) {
		for _, r := range history {
			var joined string
			switch r.Kind {
			case KindPhase, KindRace:
				joined = r.Path
			case KindJoin:
				_ = json.Unmarshal(r.Data, &joined)
			}
			if joined == branch {
				return r.Path
			}
		}
	}
	return ""
}

// splitPath parts "3.1.2" into "3.1." and 2.
func splitPath(path string) (prefix string, n int) {
	above, last := cutLast(path)
	n, _ = strconv.Atoi(last)
	if above != "" {
		above += "."
	}
	return above, n
}

func cutLast(path string) (above, last string) {
	i := strings.LastIndexByte(path, '.')
	return path[:max(i, 0)], path[i+1:]
}

type retried struct {
	Forgets []int64 `json:"forgets,omitempty"`
}

// forgottenBy collects what the retries in a history have set aside.
func forgottenBy(history []Record) map[int64]bool {
	var gone map[int64]bool
	for _, r := range history {
		var x retried
		if r.Kind != KindRetried || json.Unmarshal(r.Data, &x) != nil {
			continue
		}
		for _, seq := range x.Forgets {
			if gone == nil {
				gone = map[int64]bool{}
			}
			gone[seq] = true
		}
	}
	return gone
}
