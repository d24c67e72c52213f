package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

// A setting is a flag that the environment (BIDE_DB for --db) and a file may give
// as well. What is nearer to the hand counts: flag, environment, file, default.
var settings = []string{"db", "server", "token", "output", "addr", "public-url", "host", "origin", "tls-cert", "tls-key",
	"read-only", "allow-private", "log-level"}

const (
	configFile = "bide.yaml"
	configEnv  = "BIDE_CONFIG"
)

func envOf(setting string) string {
	return "BIDE_" + strings.ToUpper(strings.ReplaceAll(setting, "-", "_"))
}

// fromKubernetes are the variables that Kubernetes gives the containers beside a
// service that is called bide, or bide-something.
var fromKubernetes = regexp.MustCompile(`_SERVICE_(HOST|PORT(_\w+)?)$|_PORT(_\d+_(TCP|UDP|SCTP)(_(ADDR|PORT|PROTO))?)?$`)

// checkEnviron refuses what looks like a setting and is none: it would be missed
// only by what then does not happen.
func checkEnviron(environ []string) error {
	known := []string{configEnv}
	for _, name := range settings {
		known = append(known, envOf(name))
	}
	for _, line := range environ {
		name, value, _ := strings.Cut(line, "=")
		if !strings.HasPrefix(name, "BIDE_") || value == "" || slices.Contains(known, name) || fromKubernetes.MatchString(name) {
			continue
		}
		return usage("%s: there is no such setting; there are %s", name, strings.Join(known, ", "))
	}
	return nil
}

// configure gives the flags of a command that were not on the command line what
// the environment and the file say.
func configure(c *cobra.Command) error {
	if err := checkEnviron(os.Environ()); err != nil {
		return err
	}
	file, err := readConfig(c)
	if err != nil {
		return err
	}
	env := map[string][]string{}
	for _, name := range settings {
		if value, ok := os.LookupEnv(envOf(name)); ok && value != "" {
			env[name] = []string{value}
		}
	}
	flags := c.Flags()
	given := func(name string) bool { return flags.Changed(name) }
	for _, level := range []struct {
		values map[string][]string
		name   func(string) string
	}{
		{env, envOf},
		{file.values, func(s string) string { return file.name + ": " + strings.ReplaceAll(s, "-", "_") }},
	} {
		placed := given("db") || given("server") // the store is named by the nearest that names one, whole
		for _, name := range settings {
			flag, values := flags.Lookup(name), level.values[name]
			if flag == nil || !isSetting(flag) || given(name) || len(values) == 0 || placed && (name == "db" || name == "server") {
				continue
			}
			for _, value := range values {
				err := flags.Set(name, value)
				if invalid, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
					err = invalid.Unwrap() // without the flag's name, which nobody has given
				}
				if err != nil {
					return usage("%s: %w", level.name(name), err)
				}
			}
		}
	}
	return nil
}

const settingMark = "bide_setting"

// setting marks flags as ones that the environment and the file may give.
func setting(flags *pflag.FlagSet, names ...string) {
	for _, name := range names {
		if err := flags.SetAnnotation(name, settingMark, []string{"yes"}); err != nil {
			panic(err) // there is no such flag
		}
	}
}

func isSetting(f *pflag.Flag) bool { return len(f.Annotations[settingMark]) > 0 }

type config struct {
	name    string
	values  map[string][]string // by setting
	senders senders
}

// readConfig reads the file that --config or BIDE_CONFIG names, or bide.yaml if
// there is one.
func readConfig(c *cobra.Command) (config, error) {
	name, given := "", false
	if flag := c.Flags().Lookup("config"); flag != nil {
		name, given = flag.Value.String(), flag.Changed
	}
	if env := os.Getenv(configEnv); !given && env != "" {
		name, given = env, true
	}
	if name == "" {
		name = configFile
	}
	data, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) && !given {
		return config{}, nil
	} else if err != nil {
		return config{}, usage("--config: %w", err)
	}
	parsed, err := parseConfig(data)
	if err != nil {
		return config{}, usage("%s: %w", name, err)
	}
	parsed.name = name
	return parsed, nil
}

// parseConfig reads settings, each a scalar or a list of scalars, and the senders of
// webhooks.
func parseConfig(data []byte) (config, error) {
	c := config{values: map[string][]string{}}
	var nodes map[string]yaml.Node
	if err := yaml.Unmarshal(data, &nodes); err != nil {
		return c, yamlError(err)
	}
	for key, node := range nodes {
		name := strings.ReplaceAll(key, "_", "-")
		var err error
		switch {
		case key == keyEndpoints:
			c.senders.endpoints, err = parseSenders(&node, key)
		case key == keyVerifiers:
			c.senders.verifiers, err = parseSenders(&node, key)
		case !slices.Contains(settings, name) || strings.Contains(key, "-"):
			err = fmt.Errorf("line %d: there is no key %q; there are %s, %s, %s", node.Line, key,
				strings.ReplaceAll(strings.Join(settings, ", "), "-", "_"), keyEndpoints, keyVerifiers)
		default:
			var list []string
			if list, err = parseWords(&node); err != nil {
				err = fmt.Errorf("line %d: %s: must be a word, or a list of words", node.Line, key)
			}
			c.values[name] = list
		}
		if err != nil {
			return c, err
		}
	}
	return c, nil
}

// yamlError is an error of the parser's on one line.
func yamlError(err error) error {
	return fmt.Errorf("%s", strings.TrimPrefix(strings.ReplaceAll(err.Error(), "\n ", ""), "yaml: "))
}

// resolved is the node that an alias stands for.
func resolved(node *yaml.Node) *yaml.Node {
	if node.Kind == yaml.AliasNode {
		return node.Alias
	}
	return node
}

// parseWords reads a scalar or a list of scalars.
func parseWords(node *yaml.Node) (list []string, err error) {
	node = resolved(node)
	if node.Kind == yaml.SequenceNode {
		err = node.Decode(&list)
		return list, err
	}
	list = make([]string, 1)
	err = node.Decode(&list[0])
	return list, err
}
