package api

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/bide-dev/bide"
)

// read asks the store how it is. Its lists are never nil.
func (h *Handler) read(ctx context.Context) (bide.Status, error) {
	admin, err := h.admin()
	if err != nil {
		return bide.Status{}, err
	}
	s, err := admin.Status(ctx)
	s.Counts = append([]bide.Count{}, s.Counts...)
	s.Workers = append([]bide.WorkerInfo{}, s.Workers...)
	for i := range s.Workers {
		s.Workers[i].Queues = append([]string{}, s.Workers[i].Queues...)
		s.Workers[i].Workflows = append([]string{}, s.Workers[i].Workflows...)
	}
	return s, err
}

func (h *Handler) status(w http.ResponseWriter, r *http.Request) error {
	s, err := h.read(r.Context())
	if err != nil {
		return err
	}
	return sendJSON(w, http.StatusOK, struct {
		bide.Status
		Waiters int64 `json:"waiters"`
	}{s, h.held.Load()})
}

func (h *Handler) workers(w http.ResponseWriter, r *http.Request) error {
	s, err := h.read(r.Context())
	if err != nil {
		return err
	}
	return sendJSON(w, http.StatusOK, struct {
		Workers []bide.WorkerInfo `json:"workers"`
	}{s.Workers})
}

type queueView struct {
	Name    string           `json:"name"`
	Runs    map[string]int64 `json:"runs"` // by state
	Workers int              `json:"workers"`
	Oldest  *time.Time       `json:"oldest"`
}

func (h *Handler) queues(w http.ResponseWriter, r *http.Request) error {
	s, err := h.read(r.Context())
	if err != nil {
		return err
	}
	byName := map[string]*queueView{}
	queue := func(name string) *queueView {
		if byName[name] == nil {
			byName[name] = &queueView{Name: name, Runs: map[string]int64{}}
		}
		return byName[name]
	}
	for _, c := range s.Counts {
		q := queue(c.Queue)
		q.Runs[c.State.String()] += c.Runs
		if !c.Oldest.IsZero() && (q.Oldest == nil || c.Oldest.Before(*q.Oldest)) {
			q.Oldest = moment(c.Oldest)
		}
	}
	for _, worker := range s.Workers {
		for _, name := range worker.Queues {
			queue(name).Workers++
		}
	}
	list := []*queueView{}
	for _, q := range byName {
		list = append(list, q)
	}
	slices.SortFunc(list, func(a, b *queueView) int { return strings.Compare(a.Name, b.Name) })
	return sendJSON(w, http.StatusOK, struct {
		Queues []*queueView `json:"queues"`
	}{list})
}
