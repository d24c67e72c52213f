package api

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// docs/http.md shows every route with curl, and explains every code.
func TestDocs(t *testing.T) {
	data, err := os.ReadFile("../docs/http.md")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(data), "\n")
	shown := map[string]bool{}
	for i, line := range lines[:len(lines)-1] {
		op, ok := strings.CutPrefix(line, "# ")
		method, path, _ := strings.Cut(op, " ")
		if !ok || !strings.HasPrefix(path, "/") {
			continue
		}
		shown[op] = true
		quoted := regexp.MustCompile(`\\\{\w+\\\}`).ReplaceAllString(regexp.QuoteMeta(path), `[^/? "]+`)
		if curl := lines[i+1]; !strings.HasPrefix(curl, "curl ") || !regexp.MustCompile(`\$B`+quoted+`(\?|"|$)`).MatchString(curl) {
			t.Errorf("after %q: %q does not ask for it", line, curl)
		} else if puts := strings.Contains(curl, "-X PUT"); puts != (method == "PUT") || strings.Contains(curl, "-X DELETE") != (method == "DELETE") ||
			!puts && (strings.Contains(curl, "--json") || strings.Contains(curl, "-X POST") || strings.Contains(curl, " -d ")) != (method == "POST") {
			t.Errorf("after %q: %q is of another method", line, curl)
		}
	}
	for _, op := range theSpec().operations(true) {
		if !shown[op] {
			t.Errorf("docs/http.md does not show %s", op)
		}
		delete(shown, op)
	}
	for op := range shown {
		t.Errorf("docs/http.md shows %s, which is not there", op)
	}
	for _, code := range theSpec().find(theSpec().named("Problem"), "properties", "code").(map[string]any)["enum"].([]any) {
		if !strings.Contains(string(data), "\n### "+code.(string)+"\n") {
			t.Errorf("docs/http.md does not explain %s", code)
		}
	}
}
