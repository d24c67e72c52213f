package probe

import (
	"encoding/json"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

var reference = regexp.MustCompile(`\$\{env:([A-Za-z_][A-Za-z0-9_]*)\}`)

// checkReferences finds what looks like a reference and is none.
func checkReferences(field, text string) error {
	if strings.Contains(reference.ReplaceAllString(text, ""), "${env:") {
		return invalid(field, "has a reference that is none; write ${env:NAME}, of letters, digits and _")
	}
	return nil
}

// refers returns the field that has a reference in it, "" for none.
func (s *Spec) refers() string {
	texts := map[string]string{"url": s.URL, "body": s.Body}
	for name, value := range s.Headers {
		texts["headers."+name] = value
	}
	for _, field := range slices.Sorted(maps.Keys(texts)) {
		if reference.MatchString(texts[field]) {
			return field
		}
	}
	return ""
}

// secrets resolves the references of one request, and remembers what they stood
// for, so as to keep it out of every message.
type secrets struct {
	environ func(string) (string, bool)
	values  map[string]string // value, in each form it is sent in: its reference
}

const leastSecret = 4 // bytes; what is shorter hides nothing, and is found in every text

// expand resolves the references in a text; escape, which may be nil, fits a value
// to where in the text it stands.
func (s *secrets) expand(field, text string, escape func(before, value, after string) string) (string, error) {
	var out strings.Builder
	end := 0
	for _, at := range reference.FindAllStringSubmatchIndex(text, -1) {
		name := text[at[2]:at[3]]
		value, ok := s.environ(name)
		if !ok {
			return "", invalid(field, "refers to the environment variable %s, which is not set", name)
		}
		s.hide(value, text[at[0]:at[1]])
		out.WriteString(text[end:at[0]])
		if escape != nil {
			value = escape(text[:at[0]], value, text[at[1]:])
		}
		out.WriteString(value)
		end = at[1]
	}
	out.WriteString(text[end:])
	return out.String(), nil
}

func (s *secrets) hide(value, reference string) {
	if len(value) < leastSecret {
		return
	}
	quoted, _ := json.Marshal(value) // a string always can be
	path := url.URL{Path: value}
	for _, form := range []string{value, escaped(value), url.QueryEscape(value), url.PathEscape(value), path.EscapedPath(), string(quoted[1 : len(quoted)-1])} {
		s.values[form] = reference
	}
}

// scrub puts the references back in the place of their values.
func (s *secrets) scrub(text string) string {
	forms := make([]string, 0, len(s.values))
	for form := range s.values {
		forms = append(forms, form)
	}
	slices.SortFunc(forms, func(a, b string) int { return len(b) - len(a) }) // what holds another first
	for _, form := range forms {
		text = strings.ReplaceAll(text, form, s.values[form])
	}
	return text
}

// escapeInURL fits a value to its place in a URL: as it is where a URL, or its
// host, may begin, else escaped.
func escapeInURL(before, value, after string) string {
	_, place, found := strings.Cut(before, "://")
	if !found && before != "" {
		place = before
	}
	authority, _, _ := strings.Cut(after, "/")
	isUser := found && strings.Contains(authority, "@")
	if strings.ContainsAny(place, "/?") || isUser {
		return escaped(value)
	}
	return value
}

// escaped is right in every part of a URL.
func escaped(value string) string { return strings.ReplaceAll(url.QueryEscape(value), "+", "%20") }
