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

const module = "github.com/bide-dev/bide"

// floors says on which floor a package stands. A package imports packages of
// lower floors only, so never a neighbour: whoever reads one package needs to
// know nothing of those beside it, and whoever links one links none of them.
// "x/*" stands for each folder right in x.
var floors = map[string]int{
	"cmd/bide":   4,
	"examples/*": 4,
	"bench":      4,
	"chaos":      4,

	"server":   3,
	"bidetest": 3,

	"sqlite":    2,
	"postgres":  2,
	"remote":    2,
	"api":       2,
	"probe":     2,
	"cron":      2,
	"webhook":   2,
	"otel":      2,
	"dashboard": 2,
	"storetest": 2,

	".": 1,

	"wait":              0,
	"internal/wire":     0,
	"internal/keyset":   0,
	"internal/group":    0,
	"internal/timeline": 0,
	"internal/netguard": 0,
	"internal/pgtest":   0,
}

// pure packages import the standard library and each other, nothing else: what
// everyone who embeds bide links. The other packages of floor 0 stand apart,
// since generated Connect code cannot be pure.
var pure = []string{".", "wait", "internal/group", "internal/timeline"}

// forTests are the packages that any test from floor 1 up may import, whatever
// their floor: the stores, the suite that proves one, the tools for tests, and the
// handler that webhooks are nothing without. The tests of the root package also run
// the examples.
var forTests = []string{"sqlite", "postgres", "storetest", "bidetest", "webhook"}

// Names that say nothing of what is inside, so that anything may be put there.
var badNames = []string{"util", "utils", "common", "types", "models", "core", "helpers"}

const (
	maxLines     = 500
	reasonMarker = "Reason for length:"
	reasonWithin = 15 // lines from the top
)

// TestFloors checks the layout of this module.
func TestFloors(t *testing.T) {
	files := sources(t)
	if _, ok := files["floors_test.go"]; !ok || len(files) < 20 {
		t.Fatalf("found %d Go files, and not all of them are this module's", len(files))
	}
	for _, fault := range layoutFaults(files) {
		t.Error(fault)
	}
	mod, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	for _, fault := range modFaults(string(mod)) {
		t.Error(fault)
	}
}

// sources reads the Go files of the module: not those of modules inside it, nor
// what the go command passes over.
func sources(t *testing.T) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := d.Name()
		if d.IsDir() {
			if name == "." {
				return nil
			}
			_, err := os.Stat(filepath.Join(name, "go.mod"))
			if err == nil || strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_") ||
				slices.Contains([]string{"testdata", "vendor", "node_modules"}, base) {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(base, ".go") {
			return nil
		}
		src, err := os.ReadFile(name)
		files[filepath.ToSlash(name)] = string(src)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// floorOf returns the floor of the package in a folder.
func floorOf(dir string) (int, bool) {
	if floor, ok := floors[dir]; ok {
		return floor, true
	}
	floor, ok := floors[path.Dir(dir)+"/*"]
	return floor, ok
}

// layoutFaults returns what is wrong with Go files, given their texts by name.
func layoutFaults(files map[string]string) []string {
	var faults []string
	dirs := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		dirs[path.Dir(name)] = true
		faults = append(faults, fileFaults(name, files[name])...)
	}
	for _, dir := range slices.Sorted(maps.Keys(dirs)) {
		if _, ok := floorOf(dir); !ok {
			faults = append(faults, fmt.Sprintf("%s: has no floor; give it one in floors_test.go", dir))
		}
		if base := path.Base(dir); slices.Contains(badNames, base) {
			faults = append(faults, fmt.Sprintf("%s: %q does not say what is inside; name it after what it does", dir, base))
		}
	}
	return faults
}

// fileFaults returns what is wrong with one Go file.
func fileFaults(name, src string) []string {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, name, src, parser.ImportsOnly|parser.ParseComments)
	if err != nil {
		return []string{err.Error()}
	}
	var faults []string
	isTest := strings.HasSuffix(name, "_test.go")
	for _, spec := range file.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return []string{err.Error()}
		}
		if why := importFault(path.Dir(name), imported, isTest); why != "" {
			faults = append(faults, fmt.Sprintf("%s: imports %s: %s", fset.Position(spec.Pos()), imported, why))
		}
	}
	lines := strings.Split(strings.TrimSuffix(src, "\n"), "\n")
	if len(lines) > maxLines && !isTest && !ast.IsGenerated(file) && !slices.ContainsFunc(lines[:reasonWithin], givesReason) {
		faults = append(faults, fmt.Sprintf("%s: has %d lines; split it, or say why not near its top: // %s ...", name, len(lines), reasonMarker))
	}
	return faults
}

// givesReason reports whether a line is a comment with a reason in it.
func givesReason(line string) bool {
	before, reason, ok := strings.Cut(line, reasonMarker)
	return ok && strings.HasPrefix(strings.TrimSpace(before), "//") && strings.TrimSpace(reason) != ""
}

// importFault says why a file of the package in dir must not import a package,
// or "".
func importFault(dir, imported string, isTest bool) string {
	from, ok := floorOf(dir)
	if !ok {
		return "" // told once, for the package
	}
	to, inside := inModule(imported)
	if !inside {
		first, _, _ := strings.Cut(imported, "/")
		if slices.Contains(pure, dir) && !isTest && (strings.Contains(first, ".") || imported == "C") {
			return "this package needs nothing but the standard library"
		}
		return ""
	}
	floor, ok := floorOf(to)
	switch {
	case !ok:
		return "it has no floor"
	case to == dir:
		return "" // a package's external tests
	case isTest && from > 0 && slices.Contains(forTests, to):
		return ""
	case isTest && dir == "." && path.Dir(to) == "examples":
		return ""
	case floor == from:
		return fmt.Sprintf("a neighbour on floor %d", floor)
	case floor > from:
		return fmt.Sprintf("floor %d from floor %d", floor, from)
	case slices.Contains(pure, dir) && !slices.Contains(pure, to) && !isTest:
		return "this package needs nothing but the standard library, and that one may need more"
	}
	return ""
}

// inModule returns the folder of a package of this module.
func inModule(imported string) (dir string, ok bool) {
	if imported == module {
		return ".", true
	}
	return strings.CutPrefix(imported, module+"/")
}

// modFaults returns what is wrong with the text of go.mod.
func modFaults(mod string) []string {
	var faults []string
	for verb, why := range map[string]string{
		"replace":   "`go install " + module + "/cmd/bide@latest` refuses a module that has one",
		"toolchain": "which Go to use is for those who build to say",
	} {
		if regexp.MustCompile(`(?m)^\s*` + verb + `\b`).MatchString(mod) {
			faults = append(faults, "go.mod: has a "+verb+" line; "+why)
		}
	}
	if !regexp.MustCompile(`(?m)^go 1\.26\.0$`).MatchString(mod) {
		faults = append(faults, "go.mod: must say go 1.26.0, the oldest Go that this works with")
	}
	slices.Sort(faults)
	return faults
}

// A check that has never failed proves nothing: here each kind of fault is made.
func TestLayoutFaults(t *testing.T) {
	imports := func(paths ...string) string {
		src := "package p\n"
		for _, p := range paths {
			src += fmt.Sprintf("import _ %q\n", p)
		}
		return src
	}
	long := strings.Repeat("\n", maxLines)
	for _, c := range []struct {
		name string
		file string
		src  string
		want string // in the one fault; "": none
	}{
		{"down one floor", "sqlite/x.go", imports(module, module+"/internal/group", "modernc.org/sqlite"), ""},
		{"down many floors", "examples/a/x.go", imports(module+"/sqlite", module+"/wait", "example.org/x"), ""},
		{"standard library", "wait/x.go", imports("time", "math/rand/v2"), ""},
		{"root and its floor 0", "x.go", imports("context", module+"/wait", module+"/internal/group"), ""},
		{"itself, from its tests", "wait/x_test.go", imports(module + "/wait"), ""},

		{"up", "x.go", imports(module + "/sqlite"), "floor 2 from floor 1"},
		{"up from floor 0", "internal/group/x.go", imports(module), "floor 1 from floor 0"},
		{"an example", "server/x.go", imports(module + "/examples/a"), "floor 4 from floor 3"},
		{"a neighbour", "sqlite/x.go", imports(module + "/postgres"), "a neighbour on floor 2"},
		{"a neighbour on floor 0", "wait/x.go", imports(module + "/internal/group"), "a neighbour on floor 0"},
		{"another example", "examples/a/x.go", imports(module + "/examples/b"), "a neighbour on floor 4"},
		{"the suite, outside tests", "sqlite/x.go", imports(module + "/storetest"), "a neighbour on floor 2"},
		{"no floor", "sqlite/extra/x.go", imports("fmt"), "has no floor"},
		{"too deep in examples", "examples/a/b/x.go", imports("fmt"), "has no floor"},
		{"imports what has no floor", "server/x.go", imports(module + "/nowhere"), "it has no floor"},

		{"the suite, in a store's test", "sqlite/x_test.go", imports(module+"/storetest", module+"/bidetest"), ""},
		{"root's tests", "x_test.go", imports(module+"/sqlite", module+"/storetest", module+"/examples/a", "example.org/x"), ""},
		{"root's tests and a neighbour of its stores", "x_test.go", imports(module + "/remote"), "floor 2 from floor 1"},
		{"tests of floor 0", "wait/x_test.go", imports(module + "/sqlite"), "floor 2 from floor 0"},
		{"a store's test and a neighbour", "sqlite/x_test.go", imports(module + "/remote"), "a neighbour on floor 2"},

		{"root and others' code", "x.go", imports("example.org/x"), "nothing but the standard library"},
		{"wait and others' code", "wait/x.go", imports("golang.org/x/exp/rand"), "nothing but the standard library"},
		{"wait and cgo", "wait/x.go", imports("C"), "nothing but the standard library"},
		{"root and what is generated", "x.go", imports(module + "/internal/wire"), "that one may need more"},
		{"generated code and others' code", "internal/wire/x.go", imports("connectrpc.com/connect"), ""},

		{"a name for anything", "examples/utils/x.go", imports("fmt"), `"utils" does not say what is inside`},

		{"500 lines", "x.go", "package p\n" + long[1:], ""},
		{"501 lines", "x.go", "package p\n" + long, "has 501 lines"},
		{"with a reason", "x.go", "package p\n\n// " + reasonMarker + " one table.\n" + long, ""},
		{"a reason that is none", "x.go", "package p\n\n// " + reasonMarker + "\n" + long, "lines; split it"},
		{"a reason in code", "x.go", "package p\n\nconst x = \"" + reasonMarker + " x\"\n" + long, "lines; split it"},
		{"a reason too late", "x.go", "package p\n" + long + "// " + reasonMarker + " x\n", "lines; split it"},
		{"a long test", "x_test.go", "package p\n" + long, ""},
		{"generated", "x.go", "// Code generated by x. DO NOT EDIT.\n\npackage p\n" + long, ""},

		{"not Go", "x.go", "pakcage p\n", "expected 'package'"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := layoutFaults(map[string]string{c.file: c.src})
			switch {
			case c.want == "" && len(got) > 0:
				t.Errorf("faults %q, want none", got)
			case c.want != "" && (len(got) != 1 || !strings.Contains(got[0], c.want)):
				t.Errorf("faults %q, want one with %q", got, c.want)
			}
		})
	}
}

func TestModFaults(t *testing.T) {
	const good = "module " + module + "\n\ngo 1.26.0\n"
	for _, c := range []struct {
		name, mod string
		want      string // in the one fault; "": none
	}{
		{"good", good, ""},
		{"requires", good + "\nrequire example.org/replace v1.0.0 // no toolchain\n", ""},
		{"replace", good + "\nreplace example.org/x => ../x\n", "has a replace line"},
		{"replace block", good + "\nreplace (\n\texample.org/x => ../x\n)\n", "has a replace line"},
		{"toolchain", good + "toolchain go1.26.8\n", "has a toolchain line"},
		{"other Go", "module " + module + "\n\ngo 1.27\n", "must say go 1.26.0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := modFaults(c.mod)
			switch {
			case c.want == "" && len(got) > 0:
				t.Errorf("faults %q, want none", got)
			case c.want != "" && (len(got) != 1 || !strings.Contains(got[0], c.want)):
				t.Errorf("faults %q, want one with %q", got, c.want)
			}
		})
	}
}
