package bide_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// The rules of docs/waiting.md name the tests that hold them: a rule without a
// test is a wish, and a test that was renamed must take its rule along.

func TestWaitingRules(t *testing.T) {
	doc, err := os.ReadFile(filepath.FromSlash("docs/waiting.md"))
	if err != nil {
		t.Fatal(err)
	}
	rows, faults := ruleRows(string(doc))
	if len(rows) < 150 {
		t.Errorf("found %d rules; are they not read any more?", len(rows))
	}
	prefixes := map[string]bool{}
	for _, r := range rows {
		prefixes[r.id[:1]] = true
	}
	if got := slices.Sorted(maps.Keys(prefixes)); !slices.Equal(got, []string{"B", "L", "P", "S", "W"}) {
		t.Errorf("the rules are of the kinds %q", got)
	}
	for _, fault := range append(faults, ruleFaults(rows, testsOfModule(t))...) {
		t.Error(fault)
	}
}

// rule is a row of the table: what holds, and the tests that say so.
type rule struct {
	id, text string
	tests    []string // "TestX", "TestX/case", "dir.TestX/case"
}

var (
	ruleRow = regexp.MustCompile("^\\| ([A-Z])(\\d+) \\| (.+) \\| (.*) \\|$")
	ruleRef = regexp.MustCompile("^(?:([a-z0-9/]+)\\.)?((?:Test|Fuzz|Example)[A-Za-z0-9_]*)(?:/(.+))?$")
	quoted  = regexp.MustCompile("`([^`]+)`")
)

// ruleRows reads the rules, which are all below one heading, and says what is
// wrong with their ids: each kind counts from 1, without gaps.
func ruleRows(doc string) (rows []rule, faults []string) {
	_, table, found := strings.Cut(doc, "\n## The rules\n")
	if !found {
		return nil, []string{`there is no heading "## The rules"`}
	}
	table, _, _ = strings.Cut(table, "\n## ")
	last := map[string]int{}
	for line := range strings.Lines(table) {
		line = strings.TrimSpace(line)
		m := ruleRow.FindStringSubmatch(line)
		if m == nil {
			if strings.HasPrefix(line, "|") && !strings.HasPrefix(line, "| rule |") && !strings.HasPrefix(line, "|---") {
				faults = append(faults, "this row is no rule: "+line)
			}
			continue
		}
		r := rule{id: m[1] + m[2], text: m[3]}
		if n, _ := strconv.Atoi(m[2]); n != last[m[1]]+1 {
			faults = append(faults, fmt.Sprintf("%s follows %s%d", r.id, m[1], last[m[1]]))
		}
		last[m[1]]++
		for _, q := range quoted.FindAllStringSubmatch(m[4], -1) {
			r.tests = append(r.tests, q[1])
		}
		rows = append(rows, r)
	}
	return rows, faults
}

// ruleFaults says which rules have no test, or name one that is not there. tests
// are the strings of each test by its name, as testsOfModule has them.
func ruleFaults(rows []rule, tests map[string]map[string]bool) (faults []string) {
	for _, r := range rows {
		if len(r.tests) == 0 {
			faults = append(faults, r.id+" has no test: "+r.text)
		}
		for _, name := range r.tests {
			m := ruleRef.FindStringSubmatch(name)
			if m == nil {
				faults = append(faults, fmt.Sprintf("%s: %q is no name of a test", r.id, name))
				continue
			}
			function := m[2]
			if m[1] != "" {
				function = m[1] + "." + m[2]
			}
			literals, known := tests[function]
			switch {
			case !known:
				faults = append(faults, fmt.Sprintf("%s: there is no test %s", r.id, function))
			case m[3] != "" && !hasCase(literals, m[3]):
				faults = append(faults, fmt.Sprintf("%s: %s has no case %q", r.id, function, m[3]))
			}
		}
	}
	return faults
}

// hasCase reports whether a test has the case among its strings; go test shows
// spaces as underscores, and joins the names of cases of cases.
func hasCase(literals map[string]bool, name string) bool {
	shown := func(s string) string { return strings.ReplaceAll(s, " ", "_") }
	for literal := range literals {
		if shown(literal) == shown(name) {
			return true
		}
	}
	outer, inner, nested := strings.Cut(name, "/")
	return nested && hasCase(literals, outer) && hasCase(literals, inner)
}

// testsOfModule returns the strings that stand in each test of this module, by its
// name and, but for the root package, its directory: "wait.TestBackoff".
func testsOfModule(t *testing.T) map[string]map[string]bool {
	t.Helper()
	tests := map[string]map[string]bool{}
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			_, noModule := os.Stat(filepath.Join(name, "go.mod"))
			if base := d.Name(); name != "." && (base == "testdata" || strings.HasPrefix(base, ".") || noModule == nil) {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		dir := path.Dir(filepath.ToSlash(name))
		for _, decl := range file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || f.Recv != nil || !ruleRef.MatchString(f.Name.Name) {
				continue
			}
			function := f.Name.Name
			if dir != "." {
				function = dir + "." + function
			}
			tests[function] = stringsIn(f)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return tests
}

func stringsIn(f *ast.FuncDecl) map[string]bool {
	literals := map[string]bool{}
	ast.Inspect(f, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			if s, err := strconv.Unquote(lit.Value); err == nil {
				literals[s] = true
			}
		}
		return true
	})
	return literals
}

// Each fault that the table may have is found.
func TestWaitingRulesFaults(t *testing.T) {
	tests := map[string]map[string]bool{"TestA": {"a case": true, "one": true, "two": true}, "wait.TestB": {}}
	for rows, want := range map[string][]string{
		"| P1 | all is well | `TestA` |\n| P2 | so too | `wait.TestB`, `TestA/a case` |\n| S1 | and here | `TestA/a_case`, `TestA/one/two` |": nil,
		"| P1 | untested | |\n| P2 | as well | soon |":  {"P1 has no test: untested", "P2 has no test: as well"},
		"| P1 | a | `TestA` |\n| P1 | b | `TestA` |":    {"P1 follows P1"},
		"| P1 | a | `TestA` |\n| P3 | b | `TestA` |":    {"P3 follows P1"},
		"| P2 | a | `TestA` |":                          {"P2 follows P0"},
		"| P1 | a | `TestB` |":                          {"P1: there is no test TestB"},
		"| P1 | a | `wait.TestA` |":                     {"P1: there is no test wait.TestA"},
		"| P1 | a | `TestA/b case` |":                   {`P1: TestA has no case "b case"`},
		"| P1 | a | `TestA/one/three` |":                {`P1: TestA has no case "one/three"`},
		"| P1 | a | `helper` |":                         {`P1: "helper" is no name of a test`},
		"| P1 | only two cells |":                       {"this row is no rule: | P1 | only two cells |"},
		"| rule | what holds | held by |\n|---|---|---|": nil,
	} {
		read, got := ruleRows("# Waiting\n| P9 | before the heading | |\n\n## The rules\n\n" + rows + "\n\n## After\n| P7 | no rule | |\n")
		if got = append(got, ruleFaults(read, tests)...); !slices.Equal(got, want) {
			t.Errorf("of\n%s\nit finds %q, want %q", rows, got, want)
		}
	}
	if _, faults := ruleRows("# Waiting\n"); len(faults) != 1 {
		t.Errorf("of a document without rules it finds %q", faults)
	}
}
