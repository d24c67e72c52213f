package probe_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/probe"
	"github.com/bide-dev/bide/wait"
)

const secret = "hunter/22&x=ä"

func environ(name string) (string, bool) {
	v, ok := map[string]string{"TOKEN": secret, "BASE": "http://service.test/v1", "BROKEN": "a\r\nX-Evil: 1"}[name]
	return v, ok
}

// References are resolved where they stand, escaped as the place wants it.
func TestReferences(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, always(reply{200, "", nil}))
		p := newProbe(t, s, probe.Spec{
			URL:     "${env:BASE}/jobs/${env:TOKEN}?key=${env:TOKEN}&n=1",
			Method:  "POST",
			Headers: map[string]string{"Authorization": "Bearer ${env:TOKEN}", "Content-Type": "text/plain"},
			Body:    "token is ${env:TOKEN}, not ${TOKEN}",
		}, probe.Environ(environ))
		if _, err := p.Check(t.Context()); err != nil {
			t.Fatal(err)
		}
		r, body := s.last()
		if r.Host+r.URL.Path != "service.test/v1/jobs/"+secret || r.URL.Query().Get("key") != secret || r.URL.Query().Get("n") != "1" {
			t.Errorf("asked for %s %s", r.Host, r.URL)
		}
		if r.Header.Get("Authorization") != "Bearer "+secret || body != "token is "+secret+", not ${TOKEN}" || r.Header.Get("Content-Type") != "text/plain" {
			t.Errorf("sent %v, %q", r.Header, body)
		}
	})
}

func TestUserInURL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, always(reply{401, "", nil}))
		_, err := newProbe(t, s, probe.Spec{URL: "http://me:hunter22@service.test/job?key=hunter22#part"}).Check(t.Context())
		r, _ := s.last()
		if user, password, ok := r.BasicAuth(); !ok || user != "me" || password != "hunter22" {
			t.Errorf("user %q, password %q", user, password)
		}
		if text := err.Error(); strings.Contains(text, "hunter22") || !strings.Contains(text, "GET http://service.test/job: 401") {
			t.Error(text)
		}
	})
}

func TestMissingVariable(t *testing.T) {
	for field, spec := range map[string]probe.Spec{
		"url":           {URL: "http://service.test/${env:NO_SUCH}"},
		"body":          {Method: "POST", Body: "${env:NO_SUCH}"},
		"headers.X-Key": {Headers: map[string]string{"X-Key": "${env:NO_SUCH}"}},
		"headers.X-Two": {Headers: map[string]string{"X-Two": "${env:BROKEN}"}}, // a line break would be another header
	} {
		synctest.Test(t, func(t *testing.T) {
			s := serve(t, always(reply{200, "", nil}))
			_, err := newProbe(t, s, spec, probe.Environ(environ)).Check(t.Context())
			wantInvalid(t, err, field)
			if outcome, _ := wait.Judge(err); outcome != wait.Failed || s.count() != 0 {
				t.Errorf("%s: %v after %d requests; another try would be in vain", field, outcome, s.count())
			}
			if !strings.Contains(err.Error(), "environment variable") || strings.Contains(err.Error(), "Evil") {
				t.Error(err)
			}
		})
	}
}

// Whatever goes wrong, and whatever the service repeats: no error, and nothing
// that is kept of one, shows a secret. Bodies of answers are the service's own.
func TestSecretsAreNotTold(t *testing.T) {
	spec := probe.Spec{
		URL:     "http://me:${env:TOKEN}@service.test/${env:TOKEN}/job?key=${env:TOKEN}",
		Headers: map[string]string{"X-Key": "${env:TOKEN}"},
		Until:   `body.ok == true`,
		Accept:  []probe.Acceptor{{State: probe.Failure, When: `status == 409`, Message: `text`}},
	}
	echo := func(status int) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(status)
			fmt.Fprint(w, r.Header.Get("X-Key"), " ", r.URL, " ", r.URL.Query())
		}
	}
	for name, handler := range map[string]http.HandlerFunc{
		"refusal":   echo(401),
		"transient": echo(500),
		"condition": echo(200),
		"redirect": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Location", r.URL.String())
			w.WriteHeader(302)
		},
		"result": func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/result") {
				echo(403)(w, r)
				return
			}
			w.Header().Set("Location", r.URL.EscapedPath()+"/result?"+r.URL.RawQuery)
			w.WriteHeader(303)
		},
		"cut off": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			fmt.Fprint(w, secret)
		},
		"too long": func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, strings.Repeat(secret, 100_000)) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, err := newProbe(t, serve(t, handler), spec, probe.Environ(environ)).Check(t.Context())
				if err == nil {
					t.Fatal("no error")
				}
				kept, _ := json.Marshal(bide.NewFailure(err))
				for _, text := range []string{err.Error(), string(kept)} {
					for _, form := range []string{"hunter/22", "hunter%2F22"} {
						if strings.Contains(text, form) {
							t.Errorf("%s shows %s", text, form)
						}
					}
				}
				if !strings.Contains(err.Error(), "${env:TOKEN}") && name != "condition" {
					t.Errorf("%v does not say where", err)
				}
			})
		})
	}
	t.Run("message", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := newProbe(t, serve(t, echo(409)), spec, probe.Environ(environ))
			if e := wantError[*probe.FailureError](t, p, wait.Failed); strings.Contains(e.Error(), "hunter") {
				t.Error(e)
			}
		})
	})
}
