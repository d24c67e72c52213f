package api

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/bide-dev/bide"
)

// Sizes of pages.
const (
	pageSize = 50
	mostSize = 200
	lines    = 100
	mostLine = 1000
)

var listParameters = []string{"state...", "workflow", "queue", "parent", "id_prefix", "label...", "page_size", "page_token"}

// list answers with a page of runs.
func (h *Handler) list(w http.ResponseWriter, r *http.Request) error {
	params := r.URL.Query()
	for name, values := range params {
		if strings.ContainsFunc(strings.Join(values, ""), unprintable) {
			return invalid(name, "has control characters, or bytes that are not UTF-8")
		}
		params[name] = slices.DeleteFunc(values, func(v string) bool { return v == "" }) // an empty filter is none
	}
	size, err := number(r, "page_size", pageSize, 1, mostSize)
	if err != nil {
		return err
	}
	q := bide.Query{Workflow: params.Get("workflow"), Queue: params.Get("queue"), Parent: params.Get("parent"),
		IDPrefix: params.Get("id_prefix"), Limit: int(size) + 1}
	for _, list := range params["state"] {
		for name := range strings.SplitSeq(list, ",") {
			var s bide.State
			if err := s.UnmarshalText([]byte(name)); err != nil {
				return err
			}
			q.States = append(q.States, s)
		}
	}
	for _, label := range params["label"] {
		key, value, ok := strings.Cut(label, ":")
		if !ok || key == "" {
			return invalid("label", `must be "key:value"`)
		}
		if q.Labels == nil {
			q.Labels = map[string]string{}
		}
		if old, twice := q.Labels[key]; twice && old != value {
			return invalid("label", "asks for two values of "+key)
		}
		q.Labels[key] = value
	}
	places, err := before(params)
	if err != nil {
		return err
	}
	runs, err := h.runsFrom(r.Context(), q, places)
	if err != nil {
		return err
	}
	answer := struct {
		Runs []*runView `json:"runs"`
		Next *string    `json:"next_page_token"`
	}{Runs: []*runView{}}
	if len(runs) > int(size) {
		runs = runs[:size]
		answer.Next = new(pageToken(params, runs))
		params.Set("page_token", *answer.Next)
		w.Header().Set("Link", fmt.Sprintf("<%s/v1/runs?%s>; rel=\"next\"", h.cfg.Prefix, params.Encode()))
	}
	for i := range runs {
		answer.Runs = append(answer.Runs, h.view(&runs[i], time.Now()))
	}
	return sendJSON(w, http.StatusOK, answer)
}

// lastRuns is how many runs of a page its token names. One of them must still be there
// when the next page is asked for; what was purged meanwhile is passed over.
const lastRuns = 5

// pageToken is where the page after these runs begins. It holds what the page was
// filtered by: with other filters it would skip runs unseen.
func pageToken(params url.Values, runs []bide.Run) string {
	text := filters(params)
	for i, run := range slices.Backward(runs[max(0, len(runs)-lastRuns):]) {
		if text += run.ID; i > 0 {
			text += "\n" // which is in no id
		}
	}
	return base64.RawURLEncoding.EncodeToString([]byte(text))
}

func filters(params url.Values) string {
	filter := url.Values{}
	for name, values := range params {
		if name != "page_token" && name != "page_size" {
			filter[name] = values
		}
	}
	return digest([]byte(filter.Encode()))[:8]
}

func before(params url.Values) ([]string, error) {
	token := params.Get("page_token")
	if token == "" {
		return []string{""}, nil
	}
	text, err := base64.RawURLEncoding.DecodeString(token)
	rest, ok := strings.CutPrefix(string(text), filters(params))
	ids := strings.Split(rest, "\n")
	if err != nil || !ok || len(ids) > lastRuns || slices.ContainsFunc(ids, func(id string) bool { return !fitID(id) }) {
		return nil, invalid("page_token", "is none of this list; begin again without it, or with the filters that it was made for")
	}
	return ids, nil
}

// runsFrom reads a page that begins after the first of the places that is still there.
func (h *Handler) runsFrom(ctx context.Context, q bide.Query, places []string) ([]bide.Run, error) {
	for _, q.Before = range places {
		runs, err := h.store.Runs(ctx, q)
		if p, _ := problemOf(err); err == nil || q.Before == "" || p.Status != http.StatusNotFound {
			return runs, err
		}
	}
	return nil, invalid("page_token", "begins at a run that is no more; begin again without it")
}

// lineRange is which part of what a run has done is asked for.
func lineRange(r *http.Request) (after int64, limit int, err error) {
	if after, err = number(r, "after", 0, 0, 1<<62); err != nil {
		return 0, 0, err
	}
	n, err := number(r, "limit", lines, 1, mostLine)
	return after, int(n), err
}

// nextAfter is the "after" of the next page, nil if this one was not full.
func nextAfter(n, limit int, seq func() int64) *int64 {
	if n < limit {
		return nil
	}
	return new(seq())
}

// history answers with a page of what a run has done.
func (h *Handler) history(w http.ResponseWriter, r *http.Request) error {
	after, limit, err := lineRange(r)
	if err != nil {
		return err
	}
	records, err := h.store.History(r.Context(), r.PathValue("id"), after, limit)
	if err != nil {
		return err
	}
	if records == nil {
		records = []bide.Record{}
	}
	return sendJSON(w, http.StatusOK, struct {
		Records []bide.Record `json:"records"`
		Next    *int64        `json:"next_after"`
	}{records, nextAfter(len(records), limit, func() int64 { return records[limit-1].Seq })})
}

// eventPage answers with what a stream would tell of the history.
func (h *Handler) eventPage(w http.ResponseWriter, r *http.Request) error {
	after, limit, err := lineRange(r)
	if err != nil {
		return err
	}
	id := r.PathValue("id")
	records, err := h.store.History(r.Context(), id, after, limit)
	if err != nil {
		return err
	}
	events := make([]message, len(records))
	for i := range records {
		events[i] = messageOf(id, &records[i])
	}
	return sendJSON(w, http.StatusOK, struct {
		Events []message `json:"events"`
		Next   *int64    `json:"next_after"`
	}{events, nextAfter(len(events), limit, func() int64 { return events[limit-1].Seq })})
}

// chunkPage answers with a page of what a run's steps have streamed.
func (h *Handler) chunkPage(w http.ResponseWriter, r *http.Request) error {
	after, limit, err := lineRange(r)
	if err != nil {
		return err
	}
	chunks, err := h.store.Chunks(r.Context(), r.PathValue("id"), after, limit)
	if err != nil {
		return err
	}
	views := make([]chunkView, len(chunks))
	for i := range chunks {
		views[i] = chunkOf(&chunks[i])
	}
	return sendJSON(w, http.StatusOK, struct {
		Chunks []chunkView `json:"chunks"`
		Next   *int64      `json:"next_after"`
	}{views, nextAfter(len(views), limit, func() int64 { return views[limit-1].Seq })})
}
