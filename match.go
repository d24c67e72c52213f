package bide

import (
	"slices"
	"strings"
)

// Match reports whether the query selects the run, for stores that have found it by
// some of what the query asks for; Before and Limit do not count.
func (q *Query) Match(run *Run) bool {
	for name, want := range q.Labels {
		if has, ok := run.Labels[name]; !ok || has != want {
			return false
		}
	}
	return (q.Workflow == "" || q.Workflow == run.Workflow) && (q.Queue == "" || q.Queue == run.Queue) &&
		(q.Parent == "" || q.Parent == run.Parent) && strings.HasPrefix(run.ID, q.IDPrefix) &&
		(len(q.States) == 0 || slices.Contains(q.States, run.State))
}
