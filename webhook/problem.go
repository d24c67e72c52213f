package webhook

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// kind is a type of problem. Its code is stable.
type kind struct {
	code   string
	status int
	after  time.Duration // above 0: the same delivery may be kept after so long
}

var (
	invalidInput     = kind{"invalid-input", http.StatusBadRequest, 0}
	unfitInput       = kind{"invalid-input", http.StatusUnprocessableEntity, 0}
	badSignature     = kind{"bad-signature", http.StatusUnauthorized, 0}
	notFound         = kind{"not-found", http.StatusNotFound, 0}
	methodNotAllowed = kind{"method-not-allowed", http.StatusMethodNotAllowed, 0}
	gone             = kind{"gone", http.StatusGone, 0}
	payloadTooLarge  = kind{"payload-too-large", http.StatusRequestEntityTooLarge, 0}
	overloaded       = kind{"overloaded", http.StatusServiceUnavailable, 30 * time.Second}
)

// problem is a refusal as it is told (RFC 9457), with the fields that the rest of
// bide's API has.
type problem struct {
	Type       string `json:"type"`
	Title      string `json:"title"`
	Status     int    `json:"status"`
	Detail     string `json:"detail"`
	Instance   string `json:"instance"`
	Code       string `json:"code"`
	Retryable  bool   `json:"retryable"`
	RetryAfter int64  `json:"retry_after_ms,omitempty"`
}

// tell answers with a problem document.
func tell(w http.ResponseWriter, r *http.Request, k kind, detail string) {
	h := w.Header()
	asked, _, _ := strings.Cut(r.RequestURI, "?") // a handler around may have cut the path
	if k.after > 0 {
		h.Set("Retry-After", strconv.Itoa(int(k.after.Seconds())))
	}
	h.Set("Content-Type", "application/problem+json")
	w.WriteHeader(k.status)
	_ = json.NewEncoder(w).Encode(problem{"about:blank", http.StatusText(k.status), k.status, detail, // the sender may be gone
		asked, k.code, k.after > 0, k.after.Milliseconds()})
}
