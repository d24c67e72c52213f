package webhook

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/bide-dev/bide"
)

// MaxBody is the largest delivery that is taken, in bytes.
const MaxBody = 1 << 20

// Config is what a [Handler] is given. Verifiers and endpoints go by name.
type Config struct {
	// Verifiers are for webhooks made with [bide.VerifiedBy].
	Verifiers map[string]Verifier
	// Endpoints are the fixed URLs, by source.
	Endpoints map[string]Endpoint
	Logger    *slog.Logger // default slog.Default()
}

// Endpoint is one fixed URL for a sender that cannot be given a URL for each job.
// What comes is received with [bide.ReceiveEvent] under the source and the key.
type Endpoint struct {
	Verify Verifier // nil: whoever knows the URL may deliver
	// Key tells what the event is about from its body: the id of the job. An error
	// refuses the delivery.
	Key func(body []byte) (string, error)
}

// Handler takes deliveries: POST /v1/hooks/{token} for webhooks made with
// [bide.NewWebhook], POST /v1/endpoints/{source} for events. Mount it wherever
// WorkerConfig.PublicURL leads to. It keeps a delivery before it answers:
//
//	202  kept
//	200  {"duplicate":true} or {"late":true}: an error would make the sender try again
//	401  the signature does not hold; nothing is kept
//	404  no such webhook or endpoint
//	405  no POST: what only looks at a link completes nothing
//	410  the run was canceled, was terminated or timed out
//	413  the body is above MaxBody
//	503  the store cannot be written; with Retry-After
//
// What is refused is told as a problem document (RFC 9457) with a stable code.
type Handler struct {
	client *bide.Client
	cfg    Config
	mux    *http.ServeMux
}

// NewHandler returns a handler on the store. It panics on an endpoint without Key.
func NewHandler(store bide.Store, cfg Config) *Handler {
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	for source, e := range cfg.Endpoints {
		if e.Key == nil {
			panic(fmt.Sprintf("webhook.NewHandler: endpoint %q has no Key: say what its events are about", source))
		}
	}
	h := &Handler{client: bide.NewClient(store), cfg: cfg, mux: http.NewServeMux()}
	for pattern, deliver := range map[string]http.HandlerFunc{"/v1/hooks/{token}": h.hook, "/v1/endpoints/{source}": h.endpoint} {
		h.mux.HandleFunc("POST "+pattern, deliver)
		h.mux.HandleFunc(pattern, onlyPost)
	}
	h.mux.HandleFunc("/", nothing)
	return h
}

func onlyPost(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Allow", http.MethodPost)
	tell(w, r, methodNotAllowed, r.Method+" delivers nothing; POST does")
}

func nothing(w http.ResponseWriter, r *http.Request) {
	tell(w, r, notFound, "there is nothing at this path")
}

// ServeHTTP implements [http.Handler].
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	if r.URL.Path != path.Clean(r.URL.Path) { // the mux would redirect it
		nothing(w, r)
		return
	}
	h.mux.ServeHTTP(w, r)
}

func (h *Handler) hook(w http.ResponseWriter, r *http.Request) {
	target, err := h.client.Hook(r.Context(), r.PathValue("token"))
	if err != nil {
		h.refuse(w, r, err)
		return
	}
	r.SetPathValue("id", target.Run) // for a handler around that keeps a log: the token is not for it
	var verify Verifier
	if target.Verify != "" {
		if verify = h.cfg.Verifiers[target.Verify]; verify == nil {
			h.cfg.Logger.Error("a webhook names a verifier that the handler was not given; its sender is told to try again",
				"verifier", target.Verify, "run", target.Run)
			tell(w, r, overloaded, "no such verifier")
			return
		}
	}
	d, ok := h.read(w, r, verify)
	if !ok {
		return
	}
	receipt, err := target.Deliver(r.Context(), d)
	h.answer(w, r, receipt, err)
}

func (h *Handler) endpoint(w http.ResponseWriter, r *http.Request) {
	source := r.PathValue("source")
	e, known := h.cfg.Endpoints[source]
	if !known {
		h.refuse(w, r, bide.ErrNotFound)
		return
	}
	d, ok := h.read(w, r, e.Verify)
	if !ok {
		return
	}
	key, err := e.Key(d.Body)
	if err == nil && key == "" {
		err = errors.New("it names no key")
	}
	if err != nil {
		tell(w, r, unfitInput, "the endpoint cannot tell what the event is about: "+err.Error())
		return
	}
	receipt, err := h.client.DeliverEvent(r.Context(), source, key, d)
	h.answer(w, r, receipt, err)
}

// read takes the raw body and has it verified before anything of it is parsed.
func (h *Handler) read(w http.ResponseWriter, r *http.Request, v Verifier) (bide.Delivery, bool) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxBody))
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		tell(w, r, payloadTooLarge, "the body is above "+strconv.Itoa(MaxBody)+" bytes")
		return bide.Delivery{}, false
	}
	if err != nil {
		tell(w, r, invalidInput, "the body cannot be read")
		return bide.Delivery{}, false
	}
	d := bide.Delivery{ID: strings.TrimSpace(r.Header.Get("Webhook-Id")), Body: body}
	if len(d.ID) > maxID {
		tell(w, r, invalidInput, "header Webhook-Id is too long")
		return bide.Delivery{}, false
	}
	if v == nil {
		return d, true
	}
	signed, err := v.Verify(r.Header, body, time.Now())
	if err != nil {
		h.cfg.Logger.Warn("a delivery is refused", "path", r.Pattern, "error", err)
		tell(w, r, badSignature, err.Error())
		return bide.Delivery{}, false
	}
	d.ID = signed.ID // an id that is not signed proves nothing
	return d, true
}

func (h *Handler) answer(w http.ResponseWriter, r *http.Request, receipt bide.Receipt, err error) {
	if err != nil {
		h.refuse(w, r, err)
		return
	}
	status := http.StatusAccepted
	if receipt.Duplicate || receipt.Late {
		status = http.StatusOK
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(receipt) // the sender may be gone; the delivery is kept
}

func (h *Handler) refuse(w http.ResponseWriter, r *http.Request, err error) {
	switch {
	case errors.Is(err, bide.ErrNotFound):
		tell(w, r, notFound, "there is no such webhook")
	case errors.Is(err, bide.ErrGone):
		tell(w, r, gone, "the run that it was for has ended")
	default:
		h.cfg.Logger.Error("a delivery cannot be kept; its sender is told to try again", "path", r.Pattern, "error", err)
		tell(w, r, overloaded, "the delivery cannot be kept now")
	}
}
