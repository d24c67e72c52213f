package probe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/internal/netguard"
)

// request is what is to be asked, its references resolved.
type request struct {
	method  string
	url     *url.URL
	header  http.Header
	body    string
	secrets *secrets
}

// request resolves the Spec for one check.
func (p *Probe) request(seen bide.Observation) (*request, error) {
	s := &secrets{environ: p.environ, values: map[string]string{}}
	text, err := s.expand("url", p.spec.URL, escapeInURL)
	if err != nil {
		return nil, err
	}
	r := &request{method: p.spec.Method, header: http.Header{}, secrets: s}
	if r.url, err = parseURL(text); err != nil {
		return nil, err
	}
	if r.body, err = s.expand("body", p.spec.Body, nil); err != nil {
		return nil, err
	}
	r.header.Set("Accept", "application/json, */*;q=0.8")
	r.header.Set("User-Agent", "bide")
	if r.body != "" {
		r.header.Set("Content-Type", "application/json")
	}
	for name, value := range p.spec.Headers {
		if value, err = s.expand("headers."+name, value, nil); err != nil {
			return nil, err
		}
		if !fitsHeader(value) { // it did before: the variable holds a line break
			return nil, invalid("headers."+name, "would have a control character; mend the environment variable")
		}
		r.header.Set(name, value)
	}
	if p.conditional {
		for name, value := range map[string]string{"If-None-Match": seen.ETag, "If-Modified-Since": seen.LastModified} {
			if value != "" {
				r.header.Set(name, value)
			}
		}
	}
	return r, nil
}

// String is the request as it may be shown: without user, query and secrets.
func (r *request) String() string { return r.method + " " + r.place() }

func (r *request) place() string {
	return r.secrets.scrub((&url.URL{Scheme: r.url.Scheme, Host: r.url.Host, Path: r.url.Path, RawPath: r.url.RawPath}).String())
}

// fetch asks, and follows redirects: all but a 303, which says where the result is.
func (p *Probe) fetch(ctx context.Context, r *request) (*answer, error) {
	first := r
	for hops := 0; ; hops++ {
		resp, err := p.send(ctx, r)
		if err != nil {
			return nil, err
		}
		location := resp.Header.Get("Location")
		switch resp.StatusCode {
		case http.StatusMovedPermanently, http.StatusFound, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		default:
			location = ""
		}
		if location == "" {
			return p.read(ctx, r, resp)
		}
		_ = resp.Body.Close() // nothing was read of it that could be lost
		if hops == p.spec.MaxRedirects {
			return nil, &RedirectError{URL: first.place(), Reason: fmt.Sprintf("redirects more than %d times", hops)}
		}
		if r, err = r.redirected(resp.StatusCode, location); err != nil {
			return nil, err
		}
	}
}

func (p *Probe) send(ctx context.Context, r *request) (*http.Response, error) {
	if p.guarded {
		if err := netguard.CheckURL(r.url); err != nil {
			return nil, p.failed(ctx, r, err)
		}
	}
	var body io.Reader
	if r.body != "" {
		body = strings.NewReader(r.body)
	}
	req, err := http.NewRequestWithContext(ctx, r.method, r.url.String(), body)
	if err != nil {
		return nil, invalid("url", "makes no request")
	}
	req.Header = r.header.Clone()
	if host := req.Header.Get("Host"); host != "" {
		req.Host = host
		req.Header.Del("Host")
	}
	if u := r.url.User; u != nil && req.Header.Get("Authorization") == "" {
		password, _ := u.Password()
		req.SetBasicAuth(u.Username(), password)
	}
	resp, err := p.transport.RoundTrip(req)
	if err != nil {
		return nil, p.failed(ctx, r, err)
	}
	return resp, nil
}

// failed is an error on the way, in words that give nothing away.
func (p *Probe) failed(ctx context.Context, r *request, err error) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("%s: no whole answer within %v: %w", r, time.Duration(p.spec.Timeout), context.DeadlineExceeded)
	}
	if blocked, ok := errors.AsType[*netguard.BlockedError](err); ok {
		slog.WarnContext(ctx, "a probe was kept from an address", "reason", r.secrets.scrub(blocked.Error()))
		return bide.Permanent(fmt.Errorf("%s: may not be reached from here", r))
	}
	return fmt.Errorf("%s: %w", r, r.secrets.scrubbed(err))
}

// read reads at most MaxBody of the answer; the transport has decompressed it, so
// that a small answer cannot become a large one.
func (p *Probe) read(ctx context.Context, r *request, resp *http.Response) (*answer, error) {
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, p.spec.MaxBody+1))
	a := &answer{request: r, status: resp.StatusCode, header: resp.Header, data: data, at: time.Now()}
	if err != nil && (a.isOK() || ctx.Err() != nil) { // of a refusal the status is enough
		return nil, p.failed(ctx, r, err)
	}
	if int64(len(data)) > p.spec.MaxBody {
		a.data, a.truncated = data[:p.spec.MaxBody], true
	}
	plainRateLimit(a.header)
	return a, nil
}

// redirected is the request that a redirect asks for. To another host, or without
// the encryption that there was, no headers of the Spec go along, and no body.
func (r *request) redirected(status int, location string) (*request, error) {
	u, err := r.url.Parse(location)
	if err == nil {
		u, err = parseURL(u.String())
	}
	if err != nil {
		return nil, &RedirectError{URL: r.place(), Reason: "redirects to what is no URL of http or https"}
	}
	next := &request{method: r.method, url: u, header: r.header.Clone(), body: r.body, secrets: r.secrets}
	switch {
	case status == http.StatusTemporaryRedirect || status == http.StatusPermanentRedirect || r.method == http.MethodHead:
	default:
		next.method, next.body = http.MethodGet, ""
		next.header.Del("Content-Type")
	}
	if strings.EqualFold(u.Host, r.url.Host) && (u.Scheme == r.url.Scheme || u.Scheme == "https") {
		return next, nil
	}
	if next.body != "" {
		return nil, &RedirectError{URL: r.place(), Reason: "redirects a body to another host; give that host's URL if it may have it"}
	}
	next.header = http.Header{}
	for _, name := range []string{"Accept", "Accept-Language", "User-Agent"} {
		if values := r.header.Values(name); values != nil {
			next.header[name] = values
		}
	}
	return next, nil
}
