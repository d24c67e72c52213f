package main

import (
	"io/fs"
	"net/http"
	"net/http/httptest"
	"path"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
)

// The page and each of its files come with a policy that lets nothing else in, and
// what the page names is there.
func TestPage(t *testing.T) {
	inBubble(t, func(s *service) {
		get := func(name string) *httptest.ResponseRecorder {
			w := httptest.NewRecorder()
			s.handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, here+name, nil))
			return w
		}
		index := get("/").Body.String()
		if found := regexp.MustCompile(`(?i)<style|style=|\son\w+=|<script[^>]*>[^<]|https?:`).FindString(index); found != "" {
			t.Errorf("the page has %q inline:\n%s", found, index)
		}
		paths := map[string]string{"/": "text/html"}
		for _, named := range regexp.MustCompile(`(?:src|href)="([^"]*)"`).FindAllStringSubmatch(index, -1) {
			paths[named[1]] = map[string]string{".js": "javascript", ".css": "text/css", ".svg": "image/svg"}[path.Ext(named[1])]
		}
		if len(paths) != 4 {
			t.Errorf("the page names %v", paths)
		}
		for name, contentType := range paths {
			w := get(name)
			h := w.Header()
			if w.Code != http.StatusOK || !strings.Contains(h.Get("Content-Type"), contentType) || h.Get("Cache-Control") != "no-cache" || h.Get("X-Content-Type-Options") != "nosniff" {
				t.Errorf("%s: %d %v, want %s", name, w.Code, h, contentType)
			}
			csp := h.Get("Content-Security-Policy")
			for _, part := range []string{"default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'", "base-uri 'none'", "frame-ancestors 'none'"} {
				if !strings.Contains(csp, part) {
					t.Errorf("%s: no %s in %q", name, part, csp)
				}
			}
			if regexp.MustCompile(`unsafe|data:|\*`).MatchString(csp) {
				t.Errorf("%s: %q lets in too much", name, csp)
			}
		}
		for _, name := range []string{"/none.js", "/app.js.map", "/main.go"} {
			if w := get(name); w.Code != http.StatusNotFound {
				t.Errorf("%s: %d", name, w.Code)
			}
		}
	})
}

// What is embedded is what the page is made of, without maps.
func TestDist(t *testing.T) {
	names, err := fs.Glob(dist, "dist/*")
	if got := strings.Join(names, " "); err != nil || got != "dist/app.js dist/icon.svg dist/index.html dist/style.css" {
		t.Errorf("%s, %v", got, err)
	}
}

// A page whose answer was lost asks again with the same key, and gets the same story.
func TestStartTwice(t *testing.T) {
	inBubble(t, func(s *service) {
		ask := func(body string) (int, string) {
			r := httptest.NewRequest(http.MethodPost, here+"/stories", strings.NewReader(body))
			r.Header.Set("Idempotency-Key", "k1")
			w := httptest.NewRecorder()
			s.handler.ServeHTTP(w, r)
			return w.Code, w.Body.String()
		}
		code, first := ask(`{"project":"owl","chapters":1}`)
		again, second := ask(`{"project":"owl","chapters":1}`)
		if code != http.StatusAccepted || again != http.StatusAccepted || first != second {
			t.Errorf("%d %s, then %d %s", code, first, again, second)
		}
		if code, answer := ask(`{"project":"owl","chapters":2}`); code != http.StatusConflict || !strings.Contains(answer, `"field":"Idempotency-Key"`) {
			t.Errorf("another story under the key: %d %s", code, answer)
		}
		synctest.Wait()
		if code, model := s.call("GET", "/model", ""); code != http.StatusOK || model["busy"] != 1. {
			t.Errorf("the model: %d %v", code, model)
		}
	})
}
