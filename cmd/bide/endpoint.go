package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/webhook"
)

// The lists of the config file that say who delivers webhooks: to the fixed URLs of
// the server, and to those that runs make with bide.VerifiedBy.
const (
	keyEndpoints = "endpoints"
	keyVerifiers = "verifiers"
)

type senders struct{ endpoints, verifiers []sender }

// sender is one who delivers webhooks.
type sender struct {
	line    int
	name    string // of the verifier; of an endpoint its source
	scheme  string
	secrets []string // references to the environment
	key     string   // of an endpoint: CEL
}

// parseSenders reads one of the lists.
func parseSenders(node *yaml.Node, list string) ([]sender, error) {
	node = resolved(node)
	notObject := func(item *yaml.Node) bool { return resolved(item).Kind != yaml.MappingNode }
	if node.Kind != yaml.SequenceNode || slices.ContainsFunc(node.Content, notObject) {
		return nil, fmt.Errorf("line %d: %s: must be a list of objects", node.Line, list)
	}
	var items []map[string]yaml.Node
	if err := node.Decode(&items); err != nil {
		return nil, yamlError(err)
	}
	all := make([]sender, len(items))
	for i, item := range items {
		s := &all[i]
		s.line = node.Content[i].Line
		for key, value := range item {
			words, err := parseWords(&value)
			switch {
			case err != nil || resolved(&value).Kind != yaml.ScalarNode && key != "secret":
				err = fmt.Errorf("line %d: %s: must be a word", value.Line, key)
			case key == "secret":
				s.secrets = words
			case key == "scheme":
				s.scheme = words[0]
			case key == "source" && list == keyEndpoints, key == "name" && list == keyVerifiers:
				s.name = words[0]
			case key == "key" && list == keyEndpoints:
				s.key = words[0]
			default:
				err = fmt.Errorf("line %d: %s have no key %q; they have %s", value.Line, list, key, keysOf[list])
			}
			if err != nil {
				return nil, err
			}
		}
	}
	return all, nil
}

var keysOf = map[string]string{keyEndpoints: "source, scheme, secret, key", keyVerifiers: "name, scheme, secret"}

// webhooks are the senders that the config file of a command has.
func webhooks(c *cobra.Command) (webhook.Config, error) {
	file, err := readConfig(c)
	if err != nil {
		return webhook.Config{}, err
	}
	cfg, err := file.senders.compile(os.LookupEnv)
	if err != nil {
		return cfg, usage("%s: %w", file.name, err)
	}
	return cfg, nil
}

// compile makes them what a server takes.
func (s *senders) compile(environ func(string) (string, bool)) (webhook.Config, error) {
	cfg := webhook.Config{Verifiers: map[string]webhook.Verifier{}, Endpoints: map[string]webhook.Endpoint{}}
	for _, v := range s.verifiers {
		verify, err := v.verifier(environ)
		switch _, twice := cfg.Verifiers[v.name]; {
		case err != nil:
		case v.name == "":
			err = errors.New("name: is missing; it is what bide.VerifiedBy says")
		case twice:
			err = fmt.Errorf("name: two verifiers are called %q", v.name)
		case verify == nil:
			err = errors.New("scheme: none verifies nothing; leave bide.VerifiedBy out instead")
		}
		if err != nil {
			return cfg, fmt.Errorf("line %d: %w", v.line, err)
		}
		cfg.Verifiers[v.name] = verify
	}
	for _, e := range s.endpoints {
		endpoint, err := e.endpoint(environ)
		if _, twice := cfg.Endpoints[e.name]; twice && err == nil {
			err = fmt.Errorf("source: two endpoints are called %q", e.name)
		}
		if err != nil {
			return cfg, fmt.Errorf("line %d: %w", e.line, err)
		}
		cfg.Endpoints[e.name] = endpoint
	}
	return cfg, nil
}

var schemes = map[string]func(...string) (webhook.Verifier, error){
	"standard": webhook.Standard, "github": webhook.GitHub, "stripe": webhook.Stripe, "slack": webhook.Slack,
}

var fromEnviron = regexp.MustCompile(`^\$\{env:([A-Za-z_][A-Za-z0-9_]*)\}$`)

// verifier is who verifies what the sender delivers; nil with the scheme none. Its
// errors tell nothing of a secret, not even of one that stands in the file.
func (s *sender) verifier(environ func(string) (string, bool)) (webhook.Verifier, error) {
	newVerifier := schemes[s.scheme]
	switch {
	case s.scheme == "none" && s.secrets == nil:
		return nil, nil
	case s.scheme == "none":
		return nil, errors.New("secret: is of no use with scheme none")
	case newVerifier == nil:
		return nil, fmt.Errorf("scheme: %q must be standard, github, stripe, slack or, for whoever knows the URL, none", s.scheme)
	case len(s.secrets) == 0:
		return nil, errors.New("secret: is missing; write ${env:NAME}")
	}
	var secrets []string
	for _, text := range s.secrets {
		name := fromEnviron.FindStringSubmatch(text)
		if name == nil {
			return nil, errors.New("secret: must come from the environment; write ${env:NAME}")
		}
		value, ok := environ(name[1])
		if !ok || value == "" {
			return nil, fmt.Errorf("secret: the environment variable %s is not set", name[1])
		}
		secrets = append(secrets, value)
	}
	verify, err := newVerifier(secrets...)
	if invalid, ok := errors.AsType[*bide.InvalidError](err); ok {
		return nil, fmt.Errorf("secret: %s", invalid.Reason)
	}
	return verify, err
}

var segment = regexp.MustCompile(`^\w[\w.-]*$`)

func (s *sender) endpoint(environ func(string) (string, bool)) (webhook.Endpoint, error) {
	if !segment.MatchString(s.name) {
		return webhook.Endpoint{}, fmt.Errorf("source: %q must be letters, digits, -, _ and dots: it ends the URL /v1/endpoints/SOURCE", s.name)
	}
	verify, err := s.verifier(environ)
	if err != nil {
		return webhook.Endpoint{}, err
	}
	key, err := compileKey(s.key)
	return webhook.Endpoint{Verify: verify, Key: key}, err
}

// keyCost is the most that one key may cost, in CEL's units: about 10 ms.
const keyCost = 100_000

// compileKey compiles the CEL that says by its body what an event is about.
func compileKey(text string) (func([]byte) (string, error), error) {
	if strings.TrimSpace(text) == "" {
		return nil, errors.New("key: is missing; it is CEL that says by the body what an event is about, as in body.data.id")
	}
	env, err := cel.NewEnv(cel.Variable("body", cel.DynType))
	if err != nil {
		return nil, err
	}
	ast, issues := env.Compile(text)
	if issues.Err() != nil {
		return nil, fmt.Errorf("key: is no CEL that compiles: %w", issues.Err())
	}
	switch kind := ast.OutputType().Kind(); kind {
	case types.StringKind, types.DynKind, types.IntKind, types.UintKind, types.DoubleKind:
	default:
		return nil, fmt.Errorf("key: %q yields %s, it must yield string", text, ast.OutputType())
	}
	program, err := env.Program(ast, cel.CostLimit(keyCost))
	if err != nil {
		return nil, fmt.Errorf("key: is no CEL that can be run: %w", err)
	}
	return func(data []byte) (string, error) {
		var body any
		if json.Unmarshal(data, &body) != nil {
			return "", errors.New("it is no JSON")
		}
		out, _, err := program.Eval(map[string]any{"body": body})
		if err != nil {
			return "", err
		}
		return keyOf(out.Value())
	}, nil
}

// keyOf is a key as text. JSON's numbers are floats: one that a float may not have
// kept whole is no key.
func keyOf(v any) (string, error) {
	switch k := v.(type) {
	case string:
		return k, nil
	case int64:
		return strconv.FormatInt(k, 10), nil
	case uint64:
		return strconv.FormatUint(k, 10), nil
	case float64:
		if k == math.Trunc(k) && math.Abs(k) < 1<<53 {
			return strconv.FormatInt(int64(k), 10), nil
		}
	}
	return "", errors.New("its key is neither a text nor a whole number below 2^53")
}
