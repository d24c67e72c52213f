// Package dashboard serves bide's web pages: what runs, what waits and why, and what
// can be done about it. They use the HTTP API under the path they are mounted at.
//
// The pages are in dist, which is built from web and committed, so that it takes no
// Node to build or run bide.
package dashboard

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"fmt"
	"html"
	"net/http"
	"strings"
)

//go:embed dist
var dist embed.FS

// Patterns are the paths that a [Handler] answers, for [http.ServeMux]. Mounted under
// these it stands beside the API and takes no path of it.
var Patterns = []string{
	"GET /{$}", "GET /runs", "GET /runs/{id}", "GET /loops", "GET /loops/{name}", "GET /queues", "GET /start", "GET /dashboard/{file}",
}

// Config is what a [Handler] is given.
type Config struct {
	// ReadOnly says that the API refuses all that changes anything: the pages show so
	// from the beginning.
	ReadOnly bool
}

// policy lets the pages use their own files and their own server, and nothing else:
// what a workflow or a service has said can do nothing here, should it ever become
// part of a page.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// handler serves the pages.
type handler struct {
	mux   *http.ServeMux
	files map[string]*file
	pages [2]*file // by how many steps the root is above
}

// Handler returns a handler of the pages. It works under any prefix that is stripped
// before it, without being told of it: all addresses in the pages are relative. It
// asks for no API key, since the pages hold nothing; they ask for one if the API does.
func Handler(cfg Config) http.Handler {
	h := &handler{mux: http.NewServeMux(), files: map[string]*file{}}
	for name, contentType := range map[string]string{
		"app.js": "text/javascript; charset=utf-8", "style.css": "text/css; charset=utf-8", "icon.svg": "image/svg+xml",
	} {
		body, err := dist.ReadFile("dist/" + name)
		if err != nil {
			panic(err) // it is part of the program
		}
		h.files[name] = newFile(contentType, body)
	}
	for up := range h.pages {
		h.pages[up] = newFile("text/html; charset=utf-8", page(strings.Repeat("../", up), cfg.ReadOnly))
	}
	for _, pattern := range Patterns {
		h.mux.HandleFunc(pattern, h.page)
	}
	h.mux.HandleFunc("/", http.NotFound)
	return h
}

// ServeHTTP implements [http.Handler].
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Content-Security-Policy", policy)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("X-Frame-Options", "DENY")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.mux.ServeHTTP(w, r)
}

// page answers with a page, which is the same for all of them, or with a file of it.
func (h *handler) page(w http.ResponseWriter, r *http.Request) {
	if name := r.PathValue("file"); name != "" {
		f := h.files[name]
		if f == nil {
			http.NotFound(w, r)
			return
		}
		f.serve(w, r)
		return
	}
	h.pages[min(strings.Count(r.URL.EscapedPath(), "/")-1, 1)].serve(w, r)
}

// page is the one page there is. The script finds the API by data-root.
func page(root string, readOnly bool) []byte {
	if root == "" {
		root = "./"
	}
	root = html.EscapeString(root)
	return fmt.Appendf(nil, `<!doctype html>
<html lang="en" data-root="%[1]s" data-read-only="%[2]t">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>bide</title>
<link rel="icon" href="%[1]sdashboard/icon.svg">
<link rel="stylesheet" href="%[1]sdashboard/style.css">
<script type="module" src="%[1]sdashboard/app.js"></script>
</head>
<body>
<div id="app"></div>
<noscript>This page needs JavaScript. Without it there is the command line: bide list, bide show.</noscript>
</body>
</html>
`, root, readOnly)
}

// file is an answer that does not change while the program runs.
type file struct {
	contentType, tag string
	plain, zipped    []byte
}

func newFile(contentType string, body []byte) *file {
	sum := sha256.Sum256(body)
	var b bytes.Buffer
	z, _ := gzip.NewWriterLevel(&b, gzip.BestCompression) // the level is one
	_, _ = z.Write(body)                                  // to memory
	_ = z.Close()
	return &file{contentType, base64.RawURLEncoding.EncodeToString(sum[:12]), body, b.Bytes()}
}

// serve answers with the file. The names are fixed, so the browser asks each time
// whether its copy is still the one: after an update no page has parts of two.
func (f *file) serve(w http.ResponseWriter, r *http.Request) {
	h, body, tag := w.Header(), f.plain, `"`+f.tag+`"`
	h.Set("Content-Type", f.contentType)
	h.Set("Cache-Control", "no-cache")
	h.Set("Vary", "Accept-Encoding")
	if takesGzip(r) {
		body, tag = f.zipped, `"`+f.tag+`-gz"`
		h.Set("Content-Encoding", "gzip")
	}
	h.Set("ETag", tag)
	for known := range strings.SplitSeq(r.Header.Get("If-None-Match"), ",") {
		if known = strings.TrimPrefix(strings.TrimSpace(known), "W/"); known == tag || known == "*" {
			h.Del("Content-Type")
			h.Del("Content-Encoding")
			w.WriteHeader(http.StatusNotModified)
			return
		}
	}
	h.Set("Content-Length", fmt.Sprint(len(body)))
	if r.Method != http.MethodHead {
		_, _ = w.Write(body) // whoever asked may be gone
	}
}

// takesGzip reports whether the client takes an answer in gzip.
func takesGzip(r *http.Request) bool {
	for coding := range strings.SplitSeq(r.Header.Get("Accept-Encoding"), ",") {
		name, weight, _ := strings.Cut(coding, ";")
		if strings.EqualFold(strings.TrimSpace(name), "gzip") {
			weight = strings.TrimPrefix(strings.ReplaceAll(weight, " ", ""), "q=")
			return weight == "" || strings.Trim(weight, "0.") != ""
		}
	}
	return false
}
