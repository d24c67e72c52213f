package api

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/bide-dev/bide"
)

// problem is an error as it is told (RFC 9457).
type problem struct {
	Type       string        `json:"type"`
	Title      string        `json:"title"`
	Status     int           `json:"status"`
	Detail     string        `json:"detail"`
	Instance   string        `json:"instance,omitempty"`
	Code       string        `json:"code"`
	Retryable  bool          `json:"retryable"`
	RetryAfter int64         `json:"retry_after_ms,omitempty"`
	Field      string        `json:"field,omitempty"` // of the request
	ID         string        `json:"id,omitempty"`    // of the run that is in the way
	Failure    *bide.Failure `json:"failure,omitempty"`
}

func (p *problem) Error() string { return p.Detail }

// kind is a type of problem. Its code is stable, and a heading of docs/http.md.
type kind struct {
	code   string
	status int
	title  string
	after  time.Duration // above 0: the same request may work after so long
}

// ProblemBase is what the type of every problem begins with; its code follows.
const ProblemBase = "https://github.com/bide-dev/bide/blob/main/docs/http.md#"

var (
	invalidInput     = kind{"invalid-input", http.StatusBadRequest, "The request is not as it should be", 0}
	unfitInput       = kind{"invalid-input", http.StatusUnprocessableEntity, "The request does not fit the run", 0}
	keyMissing       = kind{"idempotency-key-missing", http.StatusBadRequest, "An Idempotency-Key is required", 0}
	keyReused        = kind{"idempotency-key-reused", http.StatusUnprocessableEntity, "The Idempotency-Key was used for another request", 0}
	readOnly         = kind{"read-only", http.StatusForbidden, "Nothing can be changed here", 0}
	notFound         = kind{"not-found", http.StatusNotFound, "Not found", 0}
	methodNotAllowed = kind{"method-not-allowed", http.StatusMethodNotAllowed, "The method is not allowed", 0}
	notAcceptable    = kind{"not-acceptable", http.StatusNotAcceptable, "There is no such representation", 0}
	conflict         = kind{"conflict", http.StatusConflict, "What is there is against it", 0}
	runCanceled      = kind{"run-canceled", http.StatusConflict, "The run was ended from outside", 0}
	gone             = kind{"gone", http.StatusGone, "What it was for is over", 0}
	outdated         = kind{"precondition-failed", http.StatusPreconditionFailed, "It is another than the request says", 0}
	payloadTooLarge  = kind{"payload-too-large", http.StatusRequestEntityTooLarge, "Too large", 0}
	unsupportedMedia = kind{"unsupported-media-type", http.StatusUnsupportedMediaType, "The body is not JSON", 0}
	runFailed        = kind{"run-failed", http.StatusUnprocessableEntity, "The run failed", 0}
	internalError    = kind{"internal", http.StatusInternalServerError, "Something is wrong here", 0}
	notSupported     = kind{"not-supported", http.StatusNotImplemented, "Not supported", 0}
	overloaded       = kind{"overloaded", http.StatusServiceUnavailable, "Not now", 5 * time.Second}
)

func refusal(k kind, detail string) *problem {
	return &problem{Type: ProblemBase + k.code, Title: k.title, Status: k.status, Detail: detail, Code: k.code,
		Retryable: k.after > 0, RetryAfter: k.after.Milliseconds()}
}

// invalid is bad input: which field of the request, and what to do about it.
func invalid(field, detail string) *problem {
	p := refusal(invalidInput, field+" "+detail)
	p.Field = field
	return p
}

// problemOf says an error of the store as a problem; known is false for one that
// should not be there, whose text is for the log.
func problemOf(err error) (p *problem, known bool) {
	var (
		field    *bide.InvalidError
		taken    *bide.ConflictError
		large    *bide.PayloadTooLargeError
		codec    *bide.CodecError
		tooLarge *http.MaxBytesError
	)
	switch {
	case errors.As(err, &p):
		return p, true
	case errors.As(err, &field) && (field.Field == "run" || field.Field == "loop"): // its state is not the one
		p = refusal(conflict, "the "+field.Field+" "+field.Reason)
	case errors.As(err, &field):
		p = invalid(field.Field, field.Reason)
	case errors.As(err, &taken) && taken.Key != "":
		p = refusal(keyReused, "another request had this Idempotency-Key; use a new one for each new request")
		p.ID = taken.ID
	case errors.As(err, &taken):
		p = refusal(conflict, "the id "+strconv.Quote(taken.ID)+" is taken by a run with another workflow or input; use another")
		p.ID = taken.ID
	case errors.As(err, &large):
		p = refusal(payloadTooLarge, large.Field+" is "+strconv.Itoa(large.Size)+" bytes of JSON, the limit is "+
			strconv.Itoa(large.Limit)+"; keep it elsewhere and pass a reference")
		p.Field = large.Field
	case errors.As(err, &tooLarge):
		p = refusal(payloadTooLarge, "the body is above "+strconv.FormatInt(tooLarge.Limit, 10)+" bytes; keep what is large elsewhere and pass a reference")
	case errors.As(err, &codec):
		p = invalid(codec.Field, codec.Message)
	case errors.Is(err, bide.ErrNotFound):
		p = refusal(notFound, "there is no such run")
	case errors.Is(err, bide.ErrRunEnded):
		p = refusal(conflict, "the run has ended")
	case errors.Is(err, bide.ErrGone):
		p = refusal(gone, "what it was for is over")
	case errors.Is(err, bide.ErrReadOnly):
		p = refusal(readOnly, "the store is open for reading only")
	case errors.Is(err, bide.ErrStoreFull):
		p = refusal(overloaded, "the store has no room left to write")
	case errors.Is(err, bide.ErrClosed), errors.Is(err, errClosing), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		p = refusal(overloaded, "the server is stopping")
	default:
		return refusal(internalError, "the request was understood; what went wrong is in the server's log"), false
	}
	return p, true
}

// refuse tells what is wrong.
func (h *Handler) refuse(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() != nil { // nobody is there to hear it
		return
	}
	p, known := problemOf(err)
	if !known {
		h.cfg.Logger.Error("a request failed", "method", r.Method, "route", r.Pattern, "error", err)
	}
	told := *p
	told.Instance = h.cfg.Prefix + r.URL.EscapedPath()
	if told.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.FormatInt((told.RetryAfter+999)/1000, 10))
	}
	if told.Status == http.StatusRequestEntityTooLarge {
		w.Header().Set("Connection", "close") // the rest of the body is not read
	}
	w.Header().Del("ETag")
	w.Header().Set("Cache-Control", "no-store")
	body, _ := json.Marshal(&told) // a Failure was read as JSON, so it is some
	send(w, told.Status, "application/problem+json", body)
}

func send(w http.ResponseWriter, status int, contentType string, body []byte) {
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body) // whoever asked may be gone
}

func sendJSON(w http.ResponseWriter, status int, v any) error {
	body, err := json.Marshal(v)
	if err == nil {
		send(w, status, "application/json", body)
	}
	return err
}
