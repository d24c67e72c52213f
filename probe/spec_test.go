package probe_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/probe"
)

// What does not fit is refused where it is said, by its name and with a mend.
func TestInvalidSpecs(t *testing.T) {
	accept := func(a probe.Acceptor) probe.Spec { return probe.Spec{Accept: []probe.Acceptor{a}} }
	headers := func(name, value string) probe.Spec { return probe.Spec{Headers: map[string]string{name: value}} }
	for _, c := range []struct {
		spec  probe.Spec
		field string
		text  string
	}{
		{probe.Spec{URL: "-"}, "url", "must begin with"},
		{probe.Spec{URL: "ftp://example.org"}, "url", "must begin with http:// or https://"},
		{probe.Spec{URL: "http://"}, "url", "names no host"},
		{probe.Spec{URL: "http://a b/?key=hunter22"}, "url", "cannot be parsed"},
		{probe.Spec{URL: "http://x/${env:}"}, "url", "write ${env:NAME}"},
		{probe.Spec{URL: "http://x/${env:A-B}"}, "url", "write ${env:NAME}"},
		{probe.Spec{Method: "DELETE"}, "method", "GET, HEAD or POST"},
		{probe.Spec{Method: "get"}, "method", "GET, HEAD or POST"},
		{probe.Spec{Body: "x"}, "body", "POST"},
		{probe.Spec{Method: "POST", Body: "${env:1}"}, "body", "write ${env:NAME}"},
		{probe.Spec{Method: "POST", Body: strings.Repeat("x", 70_000)}, "body", "at most"},
		{headers("", "x"), "headers", "no header name"},
		{headers("X Key", "x"), "headers", "no header name"},
		{headers("X-Kéy", "x"), "headers", "no header name"},
		{headers("X-\xff", "x"), "headers", "no header name"},
		{headers("X-Key", "a\nb"), "headers.X-Key", "control character"},
		{headers("x-key", "${env:a b}"), "headers.x-key", "write ${env:NAME}"},
		{headers("if-none-match", "x"), "headers.if-none-match", "leave it out"},
		{headers("Accept-Encoding", "x"), "headers.Accept-Encoding", "leave it out"},
		{probe.Spec{NotFoundGrace: -1}, "not_found_grace", "negative"},
		{probe.Spec{Timeout: -1}, "timeout", "negative"},
		{probe.Spec{MaxBody: -1}, "max_body", "from 1 to"},
		{probe.Spec{MaxBody: 2 << 20}, "max_body", "from 1 to"},
		{probe.Spec{MaxRedirects: -1}, "max_redirects", "from 1 to"},
		{probe.Spec{MaxRedirects: 21}, "max_redirects", "from 1 to"},

		{probe.Spec{Until: `body.`}, "until", "compiles"},
		{probe.Spec{Until: `nothing == 1`}, "until", "undeclared reference"},
		{probe.Spec{Until: `body.done`}, "until", "body.done == true"},
		{probe.Spec{Until: `status`}, "until", "yields int"},
		{probe.Spec{Until: `headers`}, "until", "yields map"},
		{probe.Spec{Until: `text.matches("(")`}, "until", "compiles"},
		{probe.Spec{Until: `elapsed > duration("soon")`}, "until", "compiles"},
		{probe.Spec{Until: `body.all(x, body.all(y, body.all(z, x == y || y == z)))`}, "until", "too costly"},
		{probe.Spec{Until: strings.Repeat("(", 1000) + "true" + strings.Repeat(")", 1000)}, "until", "compiles"},
		{probe.Spec{Progress: `)`}, "progress", "compiles"},
		{probe.Spec{ETA: `)`}, "eta", "compiles"},
		{accept(probe.Acceptor{State: "done", When: "true"}), "accept[0].state", "success, failure or retry"},
		{accept(probe.Acceptor{State: probe.Success}), "accept[0].when", "is empty"},
		{accept(probe.Acceptor{State: probe.Success, When: "body"}), "accept[0].when", "it must yield bool"},
		{accept(probe.Acceptor{State: probe.Success, When: "true", Message: "body.why"}), "accept[0].message", "string(...)"},
	} {
		switch c.spec.URL {
		case "":
			c.spec.URL = serviceURL
		case "-":
			c.spec.URL = "service.test"
		}
		_, err := probe.New(c.spec)
		e, ok := errors.AsType[*bide.InvalidError](err)
		if !ok || e.Field != c.field || !strings.Contains(e.Reason, c.text) {
			t.Errorf("%+v: %v, want %s: ... %s", c.spec, err, c.field, c.text)
		}
		if err != nil && strings.Contains(err.Error(), "hunter22") {
			t.Errorf("%v shows the URL's query", err)
		}
	}
	if _, err := probe.New(probe.Spec{}); err == nil {
		t.Error("an empty Spec is taken")
	}
	twice := probe.Spec{URL: serviceURL, Headers: map[string]string{"X-Key": "1", "x-key": "2"}}
	if _, err := probe.New(twice); err == nil || !strings.Contains(err.Error(), "given twice") {
		t.Errorf("one header given twice: %v", err)
	}
}

// One text, as JSON and as YAML, is one Spec, and comes back from both.
func TestSpecTexts(t *testing.T) {
	want := probe.Spec{
		URL: "https://example.org/jobs/7", Method: "POST", Headers: map[string]string{"X-Key": "${env:KEY}"}, Body: "{}",
		Until: `body.state == "done"`, Accept: []probe.Acceptor{{State: probe.Failure, When: `body.state == "failed"`, Message: `"why"`}},
		Progress: "body.percent", ETA: "body.eta", NotFoundGrace: probe.Duration(time.Minute), Timeout: probe.Duration(90 * time.Second),
		MaxBody: 1000, MaxRedirects: 2,
	}
	const text = `{"url":"https://example.org/jobs/7","method":"POST","headers":{"X-Key":"${env:KEY}"},"body":"{}",` +
		`"until":"body.state == \"done\"","accept":[{"state":"failure","when":"body.state == \"failed\"","message":"\"why\""}],` +
		`"progress":"body.percent","eta":"body.eta","not_found_grace":"1m0s","timeout":"1m30s","max_body":1000,"max_redirects":2}`
	data, err := json.Marshal(want)
	if err != nil || string(data) != text {
		t.Errorf("JSON is %s, %v", data, err)
	}
	written, err := yaml.Marshal(want)
	if err != nil {
		t.Error(err)
	}
	var fromJSON, fromYAML, again probe.Spec
	for _, err := range []error{json.Unmarshal(data, &fromJSON), yaml.Unmarshal(data, &fromYAML), yaml.Unmarshal(written, &again)} {
		if err != nil {
			t.Error(err)
		}
	}
	for _, got := range []probe.Spec{fromJSON, fromYAML, again} {
		if !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v", got)
		}
	}
	var d probe.Duration
	if err := d.UnmarshalText([]byte("10")); err == nil || !strings.Contains(err.Error(), "write 500ms") {
		t.Errorf("a duration without a unit: %v", err)
	}
}

// Whatever a Spec says, it is taken or refused by name, and one that is taken is
// taken again after it was kept.
func FuzzSpec(f *testing.F) {
	for _, seed := range []string{
		`{}`,
		`{"url":"http://x/${env:A}?k=${env:B}","until":"body.a == 1 && status < 300","timeout":"5s"}`,
		`{"url":"${env:BASE}/x","headers":{"a":"${env:X}"},"accept":[{"state":"retry","when":"unchanged","message":"text"}]}`,
		`{"url":"http://[::1]:80/","method":"HEAD","progress":"body.p","eta":"elapsed"}`,
		`{"url":"http://x","until":"[1,2].all(x, x > 0)","max_body":5,"max_redirects":20}`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var spec probe.Spec
		if json.Unmarshal([]byte(text), &spec) != nil {
			return
		}
		_, err := probe.New(spec)
		if err != nil {
			if e, ok := errors.AsType[*bide.InvalidError](err); !ok || e.Field == "" || e.Reason == "" {
				t.Fatalf("%s: %v", text, err)
			}
			return
		}
		data, err := json.Marshal(spec)
		if err != nil {
			t.Fatal(err)
		}
		var kept probe.Spec
		if err := json.Unmarshal(data, &kept); err != nil {
			t.Fatal(err)
		}
		if _, err := probe.New(kept); err != nil {
			t.Fatalf("%s was taken, but not as %s: %v", text, data, err)
		}
	})
}
