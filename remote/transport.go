package remote

import (
	"net/http"
	"sync/atomic"
	"time"
)

// deafAfter is when a server that has gone without a word is noticed, over HTTP/2: well
// before the leases of a worker lapse, by default.
const deafAfter = 10 * time.Second

// protocols speaks HTTP/2 over TLS as the server offers it, and without TLS finds
// out whether the other side, which may be a proxy, knows HTTP/2.
type protocols struct {
	plain [2]*http.Transport // HTTP/2 without TLS; HTTP/1.1
	tls   *http.Transport
	old   atomic.Bool // HTTP/1.1 is what is tried
	known atomic.Bool // HTTP/2 was answered
}

func newProtocols() *protocols {
	transport := func(set func(*http.Protocols)) *http.Transport {
		t := &http.Transport{Proxy: http.ProxyFromEnvironment, Protocols: new(http.Protocols),
			MaxIdleConnsPerHost: 16, IdleConnTimeout: 90 * time.Second, TLSHandshakeTimeout: 10 * time.Second,
			HTTP2: &http.HTTP2Config{SendPingTimeout: deafAfter / 2, PingTimeout: deafAfter / 2}}
		set(t.Protocols)
		return t
	}
	return &protocols{
		plain: [2]*http.Transport{
			transport(func(p *http.Protocols) { p.SetUnencryptedHTTP2(true) }),
			transport(func(p *http.Protocols) { p.SetHTTP1(true) }),
		},
		tls: transport(func(p *http.Protocols) { p.SetHTTP1(true); p.SetHTTP2(true) }),
	}
}

// RoundTrip implements [http.RoundTripper].
func (p *protocols) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Scheme == "https" {
		return p.tls.RoundTrip(req)
	}
	old := p.old.Load()
	t := p.plain[0]
	if old {
		t = p.plain[1]
	}
	resp, err := t.RoundTrip(req)
	switch {
	case err == nil && !old:
		p.known.Store(true)
	case err == nil:
	case !p.known.Load() && req.Context().Err() == nil && judge("", err).sent:
		p.old.CompareAndSwap(old, !old) // somebody answers, in another language
	}
	return resp, err
}

func (p *protocols) CloseIdleConnections() {
	for _, t := range []*http.Transport{p.plain[0], p.plain[1], p.tls} {
		t.CloseIdleConnections()
	}
}
