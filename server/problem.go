package server

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/bide-dev/bide/api"
)

// problem answers with a problem document (RFC 9457). A retry above 0 says that
// the same request may do better after so long.
func problem(w http.ResponseWriter, status int, code, detail string, retry time.Duration) {
	h := w.Header()
	doc := map[string]any{"type": api.ProblemBase + code, "title": http.StatusText(status), "status": status,
		"code": code, "detail": detail, "retryable": retry > 0}
	if at, ok := w.(*response); ok {
		doc["instance"] = at.path
	}
	if retry > 0 {
		h.Set("Retry-After", strconv.Itoa(int(retry.Seconds())))
		doc["retry_after_ms"] = retry.Milliseconds()
	}
	h.Set("Content-Type", "application/problem+json")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(doc) // the client may be gone
}
