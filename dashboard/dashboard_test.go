package dashboard_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/bide-dev/bide/dashboard"
)

func get(h http.Handler, path string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, path, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// Each address of the dashboard can be opened, reloaded and sent to somebody; its
// files are found from all of them.
func TestDeepLinks(t *testing.T) {
	h := dashboard.Handler(dashboard.Config{})
	for path, root := range map[string]string{
		"/": "./", "/runs": "./", "/loops": "./", "/queues": "./", "/start": "./", "/runs?state=failed&q=a%20b": "./",
		"/runs/run_1": "../", "/runs/a%2Fb": "../", "/loops/news": "../",
	} {
		r := get(h, path)
		text := r.Body.String()
		if r.Code != http.StatusOK || !strings.HasPrefix(r.Header().Get("Content-Type"), "text/html") {
			t.Errorf("%s: %v, %s", path, r.Code, r.Header().Get("Content-Type"))
		}
		for _, want := range []string{`data-root="` + root + `"`, `src="` + root + `dashboard/app.js"`, `href="` + root + `dashboard/style.css"`} {
			if !strings.Contains(text, want) {
				t.Errorf("%s: no %s in\n%s", path, want, text)
			}
		}
	}
}

// What is not the dashboard's stays another's, also when both are in one mux.
func TestShadowsNothing(t *testing.T) {
	h := dashboard.Handler(dashboard.Config{})
	elsewhere := []string{"/v1/runs", "/v1/runs/x", "/v1/", "/metrics", "/healthz", "/readyz", "/openapi.yaml", "/runs/x/y", "/index.html",
		"/dashboard/", "/dashboard/none.js", "/dashboard/app.js.map", "/dashboard/..%2fdashboard.go", "/favicon.ico", "/x"}
	for _, path := range elsewhere {
		if r := get(h, path); r.Code != http.StatusNotFound {
			t.Errorf("%s: %v", path, r.Code)
		}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	for _, pattern := range dashboard.Patterns {
		mux.Handle(pattern, h)
	}
	for _, path := range elsewhere {
		if strings.HasPrefix(path, "/dashboard/") && path != "/dashboard/" {
			continue
		}
		if r := get(mux, path); r.Code != http.StatusTeapot {
			t.Errorf("%s in a mux: %v", path, r.Code)
		}
	}
	post := httptest.NewRecorder()
	if h.ServeHTTP(post, httptest.NewRequest(http.MethodPost, "/runs", nil)); post.Code == http.StatusOK {
		t.Errorf("POST: %d", post.Code)
	}
}

// The root is found from the page itself, so a prefix needs no configuration.
func TestPrefix(t *testing.T) {
	h := http.StripPrefix("/tools/bide", dashboard.Handler(dashboard.Config{}))
	for path, root := range map[string]string{"/tools/bide/runs": "./", "/tools/bide/runs/x": "../", "/tools/bide/": "./"} {
		if r := get(h, path); r.Code != http.StatusOK || !strings.Contains(r.Body.String(), `data-root="`+root+`"`) {
			t.Errorf("%s: %v", path, r.Code)
		}
	}
}

// Nothing in the page is allowed that is not a file of the server's own.
func TestPolicy(t *testing.T) {
	h := dashboard.Handler(dashboard.Config{})
	for _, path := range []string{"/runs", "/dashboard/app.js", "/v1/none"} {
		policy := get(h, path).Header().Get("Content-Security-Policy")
		for _, part := range []string{"default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'", "base-uri 'none'", "frame-ancestors 'none'"} {
			if !strings.Contains(policy, part) {
				t.Errorf("%s: no %s in %q", path, part, policy)
			}
		}
		if strings.Contains(policy, "unsafe") || strings.Contains(policy, "data:") || strings.Contains(policy, "*") {
			t.Errorf("%s: %q lets in too much", path, policy)
		}
	}
	page := get(h, "/runs").Body.String()
	if found := regexp.MustCompile(`(?i)<style|style=|\son\w+=|<script[^>]*>[^<]|https?:`).FindString(page); found != "" {
		t.Errorf("the page has %q inline:\n%s", found, page)
	}
}

func TestReadOnly(t *testing.T) {
	if page := get(dashboard.Handler(dashboard.Config{ReadOnly: true}), "/runs").Body.String(); !strings.Contains(page, `data-read-only="true"`) {
		t.Error(page)
	}
}

// A browser that has the file is told so; one that takes gzip gets it.
func TestCaching(t *testing.T) {
	h := dashboard.Handler(dashboard.Config{})
	for _, path := range []string{"/runs", "/dashboard/app.js", "/dashboard/style.css", "/dashboard/icon.svg"} {
		plain, zipped := get(h, path), get(h, path, "Accept-Encoding", "br, gzip;q=0.5")
		if plain.Header().Get("Content-Encoding") != "" || zipped.Header().Get("Content-Encoding") != "gzip" {
			t.Errorf("%s: encodings %q and %q", path, plain.Header().Get("Content-Encoding"), zipped.Header().Get("Content-Encoding"))
		}
		z, err := gzip.NewReader(zipped.Body)
		if err != nil {
			t.Fatal(err)
		}
		if unzipped, err := io.ReadAll(z); err != nil || string(unzipped) != plain.Body.String() {
			t.Errorf("%s: gzip is another file (%v)", path, err)
		}
		for _, r := range []*httptest.ResponseRecorder{plain, zipped} {
			if r.Header().Get("Cache-Control") != "no-cache" {
				t.Errorf("%s: Cache-Control %q", path, r.Header().Get("Cache-Control"))
			}
			again := get(h, path, "If-None-Match", `"x", W/`+r.Header().Get("ETag"), "Accept-Encoding", r.Header().Get("Content-Encoding"))
			if again.Code != http.StatusNotModified || again.Body.String() != "" {
				t.Errorf("%s: %v with the ETag %s", path, again.Code, r.Header().Get("ETag"))
			}
		}
		if plain.Header().Get("ETag") == zipped.Header().Get("ETag") {
			t.Errorf("%s: both have the ETag %s", path, plain.Header().Get("ETag"))
		}
		if none := get(h, path, "Accept-Encoding", "gzip;q=0"); none.Header().Get("Content-Encoding") != "" {
			t.Errorf("%s: gzip;q=0 was given gzip", path)
		}
	}
}

const most = 70 << 10 // bytes, gzipped

// A page that is open all day is also opened over slow lines.
func TestSize(t *testing.T) {
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		t.Fatal(err)
	}
	total := 0
	for _, name := range []string{"app.js", "style.css"} {
		data, err := os.ReadFile("dist/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(data, []byte("sourceMappingURL")) {
			t.Errorf("%s names a source map", name)
		}
		b.Reset()
		z.Reset(&b)
		if _, err := z.Write(data); err != nil {
			t.Fatal(err)
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %d bytes, %d gzipped", name, len(data), b.Len())
		total += b.Len()
	}
	if total > most {
		t.Errorf("the scripts and styles are %d bytes gzipped, above %d", total, most)
	}
	entries, err := os.ReadDir("dist")
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != 3 {
		t.Errorf("dist holds %v", entries)
	}
}
