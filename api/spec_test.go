package api

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"mime"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"
)

// spec is openapi.yaml, by which every request and answer of the tests is judged.
type spec struct {
	doc      map[string]any
	mu       sync.Mutex
	compiler *jsonschema.Compiler
	met      map[string]bool // "GET /v1/runs/{id} 200"
}

var theSpec = sync.OnceValue(func() *spec {
	s := &spec{compiler: jsonschema.NewCompiler(), met: map[string]bool{}}
	var doc any
	if err := yaml.Unmarshal(Spec, &doc); err != nil {
		panic(err)
	}
	data, err := json.Marshal(doc)
	if err != nil {
		panic(err)
	}
	if doc, err = jsonschema.UnmarshalJSON(bytes.NewReader(data)); err != nil {
		panic(err)
	}
	s.doc = doc.(map[string]any)
	s.compiler.AssertFormat()
	if err := s.compiler.AddResource("openapi.json", doc); err != nil {
		panic(err)
	}
	return s
})

// find follows a path of keys, and references.
func (s *spec) find(from any, keys ...string) any {
	for {
		m, ok := from.(map[string]any)
		if !ok {
			return nil
		}
		if ref, ok := m["$ref"].(string); ok {
			from = s.find(s.doc, strings.Split(strings.TrimPrefix(ref, "#/"), "/")...)
			continue
		}
		if len(keys) == 0 {
			return from
		}
		from, keys = m[keys[0]], keys[1:]
		if _, deeper := from.(map[string]any); !deeper && len(keys) == 0 {
			return from
		}
	}
}

// operations are those of the handler; all are those of a server.
func (s *spec) operations(all bool) (ops []string) {
	for path, item := range s.doc["paths"].(map[string]any) {
		for method, op := range item.(map[string]any) {
			if method != "parameters" && (all || s.find(op, "x-served-by") == nil) {
				ops = append(ops, strings.ToUpper(method)+" "+path)
			}
		}
	}
	slices.Sort(ops)
	return ops
}

func (s *spec) operation(pattern string) any {
	method, path, _ := strings.Cut(pattern, " ")
	return s.find(s.doc, "paths", path, strings.ToLower(method))
}

// valid judges a value by a schema that stands in the document.
func (s *spec) valid(schema any, data []byte) error {
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	at := fmt.Sprintf("schema%p.json", schema)
	compiled, err := s.compiler.Compile(at)
	if err != nil {
		whole := map[string]any{"$ref": "openapi.json#/inline/" + at}
		inline, _ := s.doc["inline"].(map[string]any)
		if inline == nil {
			inline = map[string]any{}
			s.doc["inline"] = inline
		}
		inline[at] = schema
		if err := s.compiler.AddResource(at, whole); err != nil {
			return err
		}
		if compiled, err = s.compiler.Compile(at); err != nil {
			return err
		}
	}
	return compiled.Validate(v)
}

func (s *spec) named(name string) any {
	return s.doc["components"].(map[string]any)["schemas"].(map[string]any)[name]
}

// content is the schema for a media type; ok is false if the document has none.
func (s *spec) content(of any, contentType string) (schema any, ok bool) {
	media, _, _ := mime.ParseMediaType(contentType)
	m, ok := s.find(of, "content", media).(map[string]any)
	if !ok {
		return nil, false
	}
	return m["schema"], true
}

// judge says what is wrong with an exchange. A request that was refused may have
// been wrong itself.
func (s *spec) judge(pattern string, req *http.Request, sent []byte, resp *http.Response, got []byte) error {
	if pattern == "/" || pattern == "" {
		var p map[string]any
		if err := json.Unmarshal(got, &p); err != nil && req.Method != http.MethodHead {
			return fmt.Errorf("not a problem: %s", got)
		}
		return nil
	}
	op := s.operation(pattern)
	if op == nil {
		return fmt.Errorf("%s is not in openapi.yaml", pattern)
	}
	if resp.StatusCode < 300 && len(sent) > 0 {
		schema, ok := s.content(s.find(op, "requestBody"), req.Header.Get("Content-Type"))
		if !ok {
			return fmt.Errorf("%s: openapi.yaml has no request body of %q", pattern, req.Header.Get("Content-Type"))
		}
		if strings.HasPrefix(req.Header.Get("Content-Type"), "application/json") {
			if err := s.valid(schema, sent); err != nil {
				return fmt.Errorf("request %s: %w", sent, err)
			}
		}
	}
	responses := s.find(op, "responses")
	answer := s.find(responses, fmt.Sprint(resp.StatusCode))
	if answer == nil {
		if answer = s.find(responses, "default"); answer == nil || resp.StatusCode < 400 {
			return fmt.Errorf("%s: openapi.yaml has no answer %d", pattern, resp.StatusCode)
		}
	}
	s.mu.Lock()
	s.met[fmt.Sprintf("%s %d", pattern, resp.StatusCode)] = true
	s.mu.Unlock()
	if s.find(answer, "content") == nil || req.Method == http.MethodHead {
		if len(got) > 0 {
			return fmt.Errorf("%s %d: a body that openapi.yaml does not have: %s", pattern, resp.StatusCode, got)
		}
		return nil
	}
	schema, ok := s.content(answer, resp.Header.Get("Content-Type"))
	if !ok {
		return fmt.Errorf("%s %d: openapi.yaml has no answer of %q", pattern, resp.StatusCode, resp.Header.Get("Content-Type"))
	}
	if !strings.Contains(resp.Header.Get("Content-Type"), "json") {
		return nil
	}
	if err := s.valid(schema, got); err != nil {
		return fmt.Errorf("%s %d: %s: %w", pattern, resp.StatusCode, got, err)
	}
	return nil
}

func TestMain(m *testing.M) {
	code := m.Run()
	all := !slices.ContainsFunc([]string{"run", "skip", "fuzz", "list"}, func(name string) bool { return flag.Lookup("test."+name).Value.String() != "" })
	if code == 0 && all {
		for _, op := range theSpec().operations(false) {
			for status := range theSpec().find(theSpec().operation(op), "responses").(map[string]any) {
				if status != "default" && !theSpec().met[op+" "+status] {
					fmt.Fprintf(os.Stderr, "no test has met %s with %s\n", op, status)
					code = 1
				}
			}
		}
	}
	os.Exit(code)
}

// What is served is what openapi.yaml says, no more and no less.
func TestSpecHasTheRoutes(t *testing.T) {
	var served []string
	for _, route := range new(Handler).routes() {
		served = append(served, route.method+" "+route.path)
	}
	slices.Sort(served)
	if described := theSpec().operations(false); !slices.Equal(served, described) {
		t.Errorf("served:\n%s\nin openapi.yaml:\n%s", strings.Join(served, "\n"), strings.Join(described, "\n"))
	}
}

// Each code of a problem is in openapi.yaml; each schema is used or made for events.
func TestSpecHasTheCodes(t *testing.T) {
	codes := theSpec().find(theSpec().named("Problem"), "properties", "code").(map[string]any)["enum"].([]any)
	for _, k := range []kind{invalidInput, unfitInput, keyMissing, keyReused, readOnly, notFound, methodNotAllowed, notAcceptable, conflict,
		runCanceled, gone, outdated, payloadTooLarge, unsupportedMedia, runFailed, internalError, notSupported, overloaded} {
		if !slices.Contains(codes, any(k.code)) {
			t.Errorf("%s is not in openapi.yaml", k.code)
		}
	}
}
