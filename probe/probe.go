// Package probe is the poll that is said as data: a [Spec] with a URL, a condition
// in CEL and what else belongs to a request. It is for polls that come from
// configuration, from the command line or over an API; a check written in Go is
// [bide.Poll].
//
// [Poll] is what most need; [Loop] asks for good. [New] checks a Spec where it is
// registered, and a [Probe] asks once with [Probe.Check].
//
// An answer is judged by the first of these that fits:
//
//   - the acceptors, in their order; one that asks for what an answer other than a
//     2xx does not have is passed over
//   - 304 is pending: as before
//   - a 2xx, with Until: its condition; without: 202 is pending, the others are
//     the end
//   - 303 with a Location is the end, the result is there
//   - 429, and 403 or 503 that say when to come again, are throttled
//   - 408, 425 and 5xx are transient
//   - 404 is pending until the first 2xx, or for NotFoundGrace
//   - any other 4xx, and 501, are permanent
package probe

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"sync"
	"time"

	"cel.dev/cel-go/cel"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/internal/netguard"
)

// Probe is a Spec that has been checked and compiled.
type Probe struct {
	spec          Spec
	until         *expression
	accept        []acceptor
	progress, eta *expression
	everyStatus   bool // until is for every answer
	conditional   bool // "as before" says that until would say no again
	transport     http.RoundTripper
	environ       func(string) (string, bool)
	guarded       bool
	own           watch
}

type acceptor struct {
	state         string
	when, message *expression
}

// Option is an option of [New].
type Option func(*Probe)

// Environ is where references to environment variables are looked up; the default
// is [os.LookupEnv].
func Environ(lookup func(name string) (value string, ok bool)) Option {
	return func(p *Probe) { p.environ = lookup }
}

// Guard is for Specs that others give: only public addresses and the allowed
// prefixes are reached, directly, and a reference to an environment variable is an
// error, unless [Environ], given after it, says what may be seen. Which address was
// refused, and why, is logged and not told.
func Guard(allow ...netip.Prefix) Option {
	return func(p *Probe) {
		p.guarded, p.environ = true, nil
		p.transport = netguard.Transport(newTransport(), allow...)
	}
}

// Transport makes the requests, in the place of one with its own pool of
// connections.
func Transport(t http.RoundTripper) Option { return func(p *Probe) { p.transport = t } }

var transport = sync.OnceValue(newTransport)

const mostHeaders = 64 << 10 // bytes of an answer's headers

func newTransport() *http.Transport {
	t := &http.Transport{}
	if d, ok := http.DefaultTransport.(*http.Transport); ok {
		t = d.Clone()
	}
	t.MaxResponseHeaderBytes = mostHeaders
	return t
}

// New checks and compiles a Spec. What is wrong with it is a [bide.InvalidError]
// that names the field as it is written in JSON.
func New(spec Spec, opts ...Option) (*Probe, error) {
	p := &Probe{spec: spec.filled(), environ: os.LookupEnv}
	for _, o := range opts {
		o(p)
	}
	if p.transport == nil {
		p.transport = transport()
	}
	if err := p.spec.check(); err != nil {
		return nil, err
	}
	if field := p.spec.refers(); field != "" && p.environ == nil {
		return nil, invalid(field, "refers to an environment variable; none is shown to specs that others give")
	}
	if p.guarded {
		if err := netguard.CheckURL(p.spec.template()); err != nil {
			return nil, invalid("url", "%v", err)
		}
	}
	for i, a := range p.spec.Accept {
		field := fmt.Sprintf("accept[%d].", i)
		if a.State != Success && a.State != Failure && a.State != Retry {
			return nil, invalid(field+"state", "is %q; it must be success, failure or retry", a.State)
		}
		when, err := compile(field+"when", a.When, cel.BoolType)
		if err != nil {
			return nil, err
		}
		if when == nil {
			return nil, invalid(field+"when", "is empty")
		}
		message, err := compile(field+"message", a.Message, cel.StringType)
		if err != nil {
			return nil, err
		}
		p.accept = append(p.accept, acceptor{a.State, when, message})
	}
	for _, c := range []struct {
		into  **expression
		field string
		text  string
		want  *cel.Type
	}{
		{&p.until, "until", p.spec.Until, cel.BoolType},
		{&p.progress, "progress", p.spec.Progress, nil},
		{&p.eta, "eta", p.spec.ETA, nil},
	} {
		e, err := compile(c.field, c.text, c.want)
		if err != nil {
			return nil, err
		}
		*c.into = e
	}
	p.conditional = true
	if p.until != nil {
		p.everyStatus = p.until.asks[varStatus]
		p.conditional = !p.until.asks[varElapsed] && !p.until.asks[varAttempt]
	}
	return p, nil
}

// watch is what is known of one wait from one check to the next.
type watch struct {
	mu sync.Mutex
	known
}

type known struct {
	began    time.Time
	attempts int
	found    bool             // a 2xx has come
	seen     bide.Observation // where no poll keeps it
	last     Observation
}

// Check asks once. In the check of a [bide.Poll] or a loop it tells the poll what
// the service wants of the next check, and asks with the ETag that the poll has
// kept; elsewhere the Probe keeps it. A Probe that is asked by Check watches one
// thing; [Probe.Poll] may be called for many.
//
// Errors, besides those of the network: [ConditionError], [FailureError],
// [BodyTooLargeError], [RedirectError], [ResultError], [wait.ResponseError], and a
// permanent [bide.InvalidError] for a variable that is not set.
func (p *Probe) Check(ctx context.Context) (Observation, error) { return p.check(ctx, &p.own) }

// Poll waits until the Spec says that its time has come. One of [bide.Timeout],
// [bide.MaxAttempts] or [bide.NoTimeout] is required, as for [bide.Poll], whose
// options and errors it has; its checks are at least 1 s apart, unless
// [bide.MinInterval] says otherwise.
func (p *Probe) Poll(ctx bide.Context, name string, opts ...bide.PollOption) (Observation, error) {
	w := &watch{known: known{began: bide.Now(ctx)}}
	own := []bide.PollOption{
		bide.MinInterval(time.Second),
		// A little more: which limit was met is better told by the one that knows the URL.
		bide.AttemptTimeout(time.Duration(p.spec.Timeout) + time.Second),
	}
	return bide.Poll(ctx, name, func(ctx context.Context) (Observation, error) { return p.check(ctx, w) },
		Observation.Done, append(own, opts...)...)
}

// Poll is [New] and [Probe.Poll].
func Poll(ctx bide.Context, name string, spec Spec, opts ...bide.PollOption) (Observation, error) {
	p, err := New(spec)
	if err != nil {
		return Observation{}, err
	}
	return p.Poll(ctx, name, opts...)
}
