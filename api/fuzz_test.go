package api

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/sqlite"
)

// Whatever is sent, the answer is one of openapi.yaml, and none of them is a 500.
func FuzzHandler(f *testing.F) {
	for _, r := range new(Handler).routes() {
		path := strings.NewReplacer("{id}", "a", "{wait}", "go", "{name}", "x", "{token}", "t").Replace(r.path)
		f.Add(r.method, path, "", "application/json", "", "")
		f.Add(r.method, path+"?after=1&page_token=x&wait=0", `{"workflow":"w","by":"1h","reason":"r","force":true}`, "application/json", "k", "1")
		query := "?"
		for _, p := range r.params {
			query += strings.TrimSuffix(p, "...") + "=1&"
		}
		f.Add(r.method, path+query, `{"workflow":"w"}`, "application/json", "k", "1")
		f.Add(r.method, path+"?runs=a,b&state=x&label=a:b", "decision=approve", "application/x-www-form-urlencoded", `"k"`, "v1")
	}
	f.Add("POST", "/v1/runs", `{"workflow":"w","webhook":{"url":"http://[::1%25lo]/","secret":"whsec_"},"labels":{"a":"b"},"delay":"1h"}`, "application/json", "", "")
	f.Add("POST", "/v1/runs/%00/waits/%2f..%2f/extend", `{"by":"-9223372036854775808ns"}`, "application/json", "", "")
	f.Add("GET", "/v1/runs/a/events?last_event_id=9223372036854775807", "", "text/event-stream", "", "")
	store, err := sqlite.Open(":memory:")
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { store.Close() })
	for _, id := range []string{"a", "b"} {
		if _, err := store.Create(f.Context(), []bide.NewRun{{ID: id, Workflow: "w", Queue: "default", Input: []byte("1")}}); err != nil {
			f.Fatal(err)
		}
	}
	h := NewHandler(store, Config{Logger: slog.New(slog.DiscardHandler), MaxBody: 1 << 16})
	h.Close() // nothing is held
	f.Fuzz(func(t *testing.T, method, target, body, media, key, tag string) {
		u, err := url.ParseRequestURI(target)
		if err != nil || !strings.HasPrefix(u.Path, "/") || strings.ContainsAny(method, " \t\r\n/") || method == "" || method == "CONNECT" {
			t.Skip()
		}
		r := httptest.NewRequest(http.MethodGet, "/", strings.NewReader(body))
		r.Method, r.URL, r.RequestURI = method, u, target
		for name, value := range map[string]string{"Content-Type": media, "Accept": media, "Idempotency-Key": key, "If-None-Match": tag,
			"Last-Event-ID": tag, "Prefer": tag, "Traceparent": key} {
			if value != "" {
				r.Header.Set(name, value)
			}
		}
		_, pattern := h.mux.Handler(r)
		w := httptest.NewRecorder()
		began := time.Now()
		h.ServeHTTP(w, r)
		if w.Code >= 500 && w.Code != http.StatusServiceUnavailable {
			t.Errorf("%s %s: %d %s", method, target, w.Code, w.Body)
		}
		if w.Code == http.StatusMovedPermanently || time.Since(began) > time.Minute {
			t.Errorf("%s %s: %d", method, target, w.Code)
		}
		if u.EscapedPath() != r.URL.EscapedPath() || pattern == "" {
			return
		}
		if w.Code >= 400 || method == http.MethodHead || strings.Contains(w.Header().Get("Content-Type"), "event-stream") {
			pattern = "/" // a request that is refused need not be one of the file's; a problem it must be
			if w.Code < 400 || strings.HasPrefix(w.Header().Get("Content-Type"), "text/html") {
				return
			}
		}
		sent := body
		if !strings.HasPrefix(media, "application/json") || theSpec().find(theSpec().operation(pattern), "requestBody") == nil {
			sent = ""
		}
		if err := theSpec().judge(pattern, r, []byte(sent), w.Result(), w.Body.Bytes()); err != nil {
			t.Error(err)
		}
	})
}

// Whatever order JSON is written in, its canonical form is the same; other JSON has
// another.
func FuzzCanonical(f *testing.F) {
	f.Add(`{"b":1.0,"a":[{"d":1,"c":2}]}`)
	f.Add(`12345678901234567890`)
	f.Fuzz(func(t *testing.T, text string) {
		once := canonical([]byte(text))
		if twice := canonical(once); string(twice) != string(once) {
			t.Errorf("%s becomes %s, and that %s", text, once, twice)
		}
	})
}
