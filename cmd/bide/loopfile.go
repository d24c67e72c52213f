package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/probe"
)

var unknownKey = regexp.MustCompile(`field (\S+) not found in type \S+`)

// readLoops reads a file of loops; what is wrong with it is a usage error.
func readLoops(file string) ([]*bide.LoopDefinition, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var specs []probe.LoopSpec
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	decoder.KnownFields(true)
	if err := decoder.Decode(&specs); errors.Is(err, io.EOF) {
		return nil, usage("%s: is empty; it must be a list of loops", file)
	} else if err != nil {
		text := unknownKey.ReplaceAllString(err.Error(), `there is no key "$1"`)
		text = strings.TrimPrefix(strings.ReplaceAll(text, "\n ", ""), "yaml: unmarshal errors: ")
		return nil, usage("%s: %s", file, text)
	}
	if len(specs) == 0 {
		return nil, usage("%s: has no loops", file)
	}
	seen := map[string]bool{}
	loops := make([]*bide.LoopDefinition, len(specs))
	for i, s := range specs {
		if seen[s.Name] {
			return nil, usage("%s: two loops are called %q", file, s.Name)
		}
		seen[s.Name] = true
		loops[i], err = probe.Loop(s, nil)
		if invalid, ok := errors.AsType[*bide.InvalidError](err); ok {
			return nil, usage("%s: loop %d (%s): %s: %s", file, i+1, s.Name, invalid.Field, invalid.Reason)
		} else if err != nil {
			return nil, err
		}
	}
	return loops, nil
}
