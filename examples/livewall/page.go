package main

import (
	"embed"
	"io/fs"
	"net/http"
)

// dist is what web is built into. It is committed, so that it takes no Node to run
// the wall.
//
//go:embed dist
var dist embed.FS

// policy lets the page use its own files and its own server, and nothing else: what a
// provider of news says can do nothing here, should it ever become part of the page.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// page serves the front end. Its files have fixed names, so the browser asks each time.
func page() http.Handler {
	files, err := fs.Sub(dist, "dist")
	if err != nil {
		panic(err) // it is part of the program
	}
	server := http.FileServerFS(files)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-cache")
		server.ServeHTTP(w, r)
	})
}
