package main

import (
	"context"
	"encoding/json"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"path"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func get(ctx context.Context, h http.Handler, name string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, name, nil))
	return w
}

// Each loop has something to show, at any time.
func TestService(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHandler(2 * time.Second)
		for range 50 {
			for name, into := range map[string]any{"stocks": &stocks{}, "notifications": &notifications{}, "news": &news{}} {
				w := get(t.Context(), h, "/api/"+name)
				if err := json.Unmarshal(w.Body.Bytes(), into); err != nil || w.Code != http.StatusOK || w.Header().Get("Content-Type") != "application/json" {
					t.Fatalf("%s: %d %s", name, w.Code, w.Body)
				}
			}
			time.Sleep(7 * time.Second)
		}
	})
}

// Weather fails three times in a row, so that a loop backs off to eight intervals,
// and comes back.
func TestFlaky(t *testing.T) {
	h := newHandler(0)
	var got strings.Builder
	for range 16 {
		w := get(t.Context(), h, "/api/weather")
		var is weather
		switch err := json.Unmarshal(w.Body.Bytes(), &is); {
		case w.Code == http.StatusServiceUnavailable:
			got.WriteByte('-')
		case w.Code == http.StatusOK && err == nil && is.Place != "" && is.Sky != "":
			got.WriteByte('+')
		default:
			t.Fatalf("%d %s", w.Code, w.Body)
		}
	}
	if got.String() != "+++---+++++---++" {
		t.Errorf("%s", got.String())
	}
}

// News take their time, unless nobody waits for them any more.
func TestSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHandler(2 * time.Second)
		began := time.Now()
		if w := get(t.Context(), h, "/api/news"); w.Code != http.StatusOK || time.Since(began) != 2*time.Second {
			t.Errorf("%d after %v", w.Code, time.Since(began))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began = time.Now()
		if w := get(ctx, h, "/api/news"); w.Body.Len() != 0 || time.Since(began) != time.Second {
			t.Errorf("%s after %v", w.Body, time.Since(began))
		}
	})
}

// The page and each of its files come with a policy that lets nothing else in, and
// what the page names is there.
func TestPage(t *testing.T) {
	h := newHandler(0)
	index := get(t.Context(), h, "/").Body.String()
	if found := regexp.MustCompile(`(?i)<style|style=|\son\w+=|<script[^>]*>[^<]|https?:`).FindString(index); found != "" {
		t.Errorf("the page has %q inline:\n%s", found, index)
	}
	names := map[string]string{"/": "text/html"}
	for _, named := range regexp.MustCompile(`(?:src|href)="([^"]*)"`).FindAllStringSubmatch(index, -1) {
		names[named[1]] = map[string]string{".js": "javascript", ".css": "text/css", ".svg": "image/svg"}[path.Ext(named[1])]
	}
	if len(names) != 4 {
		t.Errorf("the page names %v", names)
	}
	for name, contentType := range names {
		w := get(t.Context(), h, name)
		header := w.Header()
		if w.Code != http.StatusOK || !strings.Contains(header.Get("Content-Type"), contentType) || header.Get("Cache-Control") != "no-cache" || header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: %d %v, want %s", name, w.Code, header, contentType)
		}
		csp := header.Get("Content-Security-Policy")
		for _, part := range []string{"default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'", "base-uri 'none'", "frame-ancestors 'none'"} {
			if !strings.Contains(csp, part) {
				t.Errorf("%s: no %s in %q", name, part, csp)
			}
		}
		if regexp.MustCompile(`unsafe|data:|\*`).MatchString(csp) {
			t.Errorf("%s: %q lets in too much", name, csp)
		}
	}
	for _, name := range []string{"/none.js", "/app.js.map", "/main.go", "/api/none"} {
		if w := get(t.Context(), h, name); w.Code != http.StatusNotFound {
			t.Errorf("%s: %d", name, w.Code)
		}
	}
}

// What is embedded is what the page is made of, without maps.
func TestDist(t *testing.T) {
	names, err := fs.Glob(dist, "dist/*")
	if got := strings.Join(names, " "); err != nil || got != "dist/app.js dist/icon.svg dist/index.html dist/style.css" {
		t.Errorf("%s, %v", got, err)
	}
}
