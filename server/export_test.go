package server

import (
	"context"
	"net"
	"net/http"
)

// Serve is Run on a listener that a test has made.
func (s *Server) Serve(ctx context.Context, l net.Listener) error { return s.serve(ctx, l) }

// Outward is the way that webhooks are sent, to private addresses too.
func Outward() http.RoundTripper { return outward(true) }

// SendBy has webhooks sent another way.
func (s *Server) SendBy(way http.RoundTripper) { s.outward = way }
