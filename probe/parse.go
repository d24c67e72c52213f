package probe

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/bide-dev/bide"
)

// loopFields are the names of a LoopSpec's fields.
var loopFields = sync.OnceValue(func() (names []string) {
	for _, f := range reflect.VisibleFields(reflect.TypeFor[LoopSpec]()) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
})

var unknownField = regexp.MustCompile(`^json: unknown field "(.*)"$`)

// ParseLoop reads a LoopSpec from JSON. It is strict: a field that is not known, or
// of another type, is a [bide.InvalidError] that names it. What the fields say is
// checked by [Loop].
func ParseLoop(data []byte) (spec LoopSpec, err error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(data, &members); err != nil || members == nil {
		return spec, invalid("body", `must be a JSON object, as in {"url":"https://example.org/news.json","every":"30s"}`)
	}
	for _, name := range slices.Sorted(maps.Keys(members)) {
		if !slices.Contains(loopFields(), name) {
			return spec, invalid(name, "is not known; there are %s", strings.Join(loopFields(), ", "))
		}
		one, err := json.Marshal(map[string]json.RawMessage{name: members[name]})
		if err != nil {
			return spec, invalid(name, "is not JSON")
		}
		decoder := json.NewDecoder(bytes.NewReader(one))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&spec); err != nil {
			return spec, misfit(name, err)
		}
	}
	return spec, nil
}

// misfit says why a field could not be read.
func misfit(name string, err error) error {
	if field, ok := errors.AsType[*bide.InvalidError](err); ok {
		return invalid(name, "%s", field.Reason)
	}
	if m := unknownField.FindStringSubmatch(err.Error()); m != nil {
		return invalid(name+"."+m[1], "is not known")
	}
	what := "something else"
	if f, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		switch {
		case f.Type == reflect.TypeFor[Duration]():
			what = `a duration, such as "30s"`
		case f.Type.Kind() == reflect.String:
			what = "a string"
		case f.Type.Kind() == reflect.Bool:
			what = "true or false"
		case f.Type.Kind() == reflect.Int || f.Type.Kind() == reflect.Int64:
			what = "a whole number"
		case f.Type.Kind() == reflect.Map || f.Type.Kind() == reflect.Struct:
			what = "an object"
		case f.Type.Kind() == reflect.Slice:
			what = "a list"
		}
	}
	return invalid(name, "must be %s", what)
}
