package remote

import (
	"net/http"
	"time"
)

// newTransport speaks HTTP/2 over TLS where the server offers it, and HTTP/1.1 without
// TLS: a request with a connection of its own is answered sooner than one of several on
// one, every proxy passes it on, and a worker has no more than five.
func newTransport() *http.Transport {
	return &http.Transport{
		Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true,
		MaxIdleConnsPerHost: 16, IdleConnTimeout: 90 * time.Second, TLSHandshakeTimeout: 10 * time.Second,
		// A connection that requests share is not given up with one of them.
		HTTP2: &http.HTTP2Config{SendPingTimeout: deafAfter / 3, PingTimeout: deafAfter / 3},
	}
}
