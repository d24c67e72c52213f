package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

// A setting is a flag that the environment (BIDE_DB for --db) and a file may give
// as well. What is nearer to the hand counts: flag, environment, file, default.
var settings = []string{"db", "server", "token", "output", "addr", "public-url", "host", "origin", "tls-cert", "tls-key", "read-only"}

const configFile = "bide.yaml"

func envOf(setting string) string {
	return "BIDE_" + strings.ToUpper(strings.ReplaceAll(setting, "-", "_"))
}

// configure gives the flags of a command that were not on the command line what
// the environment and the file say.
func configure(c *cobra.Command) error {
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
	name   string
	values map[string][]string // by setting
}

// readConfig reads the file that --config or BIDE_CONFIG names, or bide.yaml if
// there is one.
func readConfig(c *cobra.Command) (config, error) {
	name, given := "", false
	if flag := c.Flags().Lookup("config"); flag != nil {
		name, given = flag.Value.String(), flag.Changed
	}
	if env := os.Getenv("BIDE_CONFIG"); !given && env != "" {
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
	values, err := parseConfig(data)
	if err != nil {
		return config{}, usage("%s: %w", name, err)
	}
	return config{name, values}, nil
}

// parseConfig reads settings, each a scalar or a list of scalars.
func parseConfig(data []byte) (map[string][]string, error) {
	var nodes map[string]yaml.Node
	if err := yaml.Unmarshal(data, &nodes); err != nil {
		return nil, fmt.Errorf("%s", strings.TrimPrefix(strings.ReplaceAll(err.Error(), "\n ", ""), "yaml: "))
	}
	values := map[string][]string{}
	for key, node := range nodes {
		name := strings.ReplaceAll(key, "_", "-")
		if !slices.Contains(settings, name) || strings.Contains(key, "-") {
			return nil, fmt.Errorf("line %d: there is no key %q; there are %s", node.Line, key,
				strings.ReplaceAll(strings.Join(settings, ", "), "-", "_"))
		}
		var err error
		if node.Kind == yaml.SequenceNode {
			var list []string
			err = node.Decode(&list)
			values[name] = list
		} else {
			var one string
			err = node.Decode(&one)
			values[name] = []string{one}
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %s: must be a word, or a list of words", node.Line, key)
		}
	}
	return values, nil
}
