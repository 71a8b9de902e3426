package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestList checks that every mutant still fits the code, and that its name is its
// own.
func TestList(t *testing.T) {
	t.Parallel()
	list, err := mutants()
	if err != nil {
		t.Fatal(err)
	}
	names := make(map[string]bool)
	for _, m := range list {
		if err := m.check("../.."); err != nil {
			t.Error(err)
		}
		if names[m.name] {
			t.Errorf("two mutants are named %q", m.name)
		}
		names[m.name] = true
		covered := false
		for _, s := range suites() {
			covered = covered || s.mayCatch(m)
		}
		if !covered {
			t.Errorf("%s: no suite covers %s", m.name, m.file)
		}
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	list, err := parse("# about\n\n== first\na/b.go: why: it matters\n-\told\n-\n+\tnew\n\n== second\nc.go: why\n-gone\n")
	want := []mutant{
		{"first", "a/b.go", "why: it matters", "\told\n\n", "\tnew\n"},
		{"second", "c.go", "why", "gone\n", ""},
	}
	if err != nil || len(list) != 2 || list[0] != want[0] || list[1] != want[1] {
		t.Errorf("parse = %q, %v, want %q", list, err, want)
	}
	for _, tt := range []struct{ name, text, want string }{
		{"lines of no mutant", "a.go: why\n", "1: this belongs to no mutant"},
		{"new before old", "== name\na.go: why\n+new\n", "3: a mutant is"},
		{"old after new", "== name\na.go: why\n-old\n+new\n-more\n", "5: a mutant is"},
		{"two reasons", "== name\na.go: why\nb.go: why\n", "3: a mutant is"},
	} {
		if _, err := parse(tt.text); err == nil || !strings.HasPrefix(err.Error(), tt.want) {
			t.Errorf("%s: parse = %v, want %q", tt.name, err, tt.want)
		}
	}
}

func TestApply(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, text, old, want, err string }{
		{"once", "a\nb\nc\n", "b\n", "a\nB\nc\n", ""},
		{"at the beginning", "b\nc\n", "b\n", "B\nc\n", ""},
		{"at the end", "a\nb\n", "b\n", "a\nB\n", ""},
		{"whole lines only", "ab\nb\nbc\n", "b\n", "ab\nB\nbc\n", ""},
		{"several lines", "b\na\nb\n", "a\nb\n", "b\nB\n", ""},
		{"not there", "a\nab\n", "b\n", "", "has rotted"},
		{"twice", "b\na\nb\n", "b\n", "", "more than once"},
		{"twice, one behind the other", "1\n1\n", "1\n", "", "more than once"},
		{"nothing to look for", "a\n", "", "", "has rotted"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			path := filepath.Join(root, "dir", "file.go")
			if err := write(path, []byte(tt.text)); err != nil {
				t.Fatal(err)
			}
			m := mutant{name: "name", file: "dir/file.go", old: tt.old, now: "B\n"}
			err := m.apply(root)
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("apply = %v, want an error that says %q", err, tt.err)
				}
				tt.want = tt.text // it stays as it was
			} else if err != nil {
				t.Errorf("apply = %v", err)
			}
			if got, _ := os.ReadFile(path); string(got) != tt.want {
				t.Errorf("the file is %q, want %q", got, tt.want)
			}
		})
	}
	if err := (mutant{name: "name", file: "gone.go", old: "a\n"}).apply(t.TempDir()); err == nil {
		t.Error("apply to a file that is not there = nil")
	}
}

// TestHunt puts mutants into a program of one line, and looks whether its own test
// catches them.
func TestHunt(t *testing.T) {
	t.Parallel()
	sum := []suite{tests("sum", "sum", "other")}
	h := newHunter(t.Context(), t.TempDir(), sum, 5)
	for name, text := range map[string]string{
		"go.mod":         "module example.com/sum\n\ngo 1.26\n",
		"sum/sum.go":     "package sum\n\nfunc Sum(a, b int) int {\n\treturn a + b\n}\n",
		"other/other.go": "package other\n\nconst (\n\tOne = 1\n)\n",
		"sum/sum_test.go": `package sum

import "testing"

func TestSum(t *testing.T) {
	t.Run("of two", func(t *testing.T) {
		if Sum(1, 2) != 3 {
			t.Error("wrong")
		}
	})
}
`,
	} {
		if err := write(filepath.Join(h.source(), name), []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		name              string
		file, old, now    string
		suite, test, fail string
	}{
		{"caught", "sum/sum.go", "\treturn a + b\n", "\treturn a - b\n", "sum", "TestSum/of_two", ""},
		{"caught by a panic", "sum/sum.go", "\treturn a + b\n", "\tpanic(a + b)\n", "sum", "TestSum/of_two", ""},
		{"survives", "other/other.go", "\tOne = 1\n", "\tOne = 2\n", "", "", ""},
		{"does not compile", "sum/sum.go", "\treturn a + b\n", "\treturn a + c\n", "", "", "undefined: c"},
		{"has rotted", "sum/sum.go", "\treturn b + a\n", "\treturn a\n", "", "", "has rotted"},
	} {
		got, err := h.try(t.Context(), mutant{name: tt.name, file: tt.file, old: tt.old, now: tt.now})
		switch {
		case tt.fail != "":
			if err == nil || !strings.Contains(err.Error(), tt.fail) {
				t.Errorf("%s: try = %v, want an error that says %q", tt.name, err, tt.fail)
			}
		case err != nil || got.suite != tt.suite || got.test != tt.test:
			t.Errorf("%s: try = suite %q, test %q, %v; want %q, %q", tt.name, got.suite, got.test, err, tt.suite, tt.test)
		}
	}
	broken := mutant{name: "broken", file: "sum/sum.go", old: "\treturn a + b\n", now: "\treturn a - b\n"}
	if err := broken.apply(h.source()); err != nil {
		t.Fatal(err)
	}
	h = newHunter(t.Context(), h.dir, sum, 1)
	if _, err := h.try(t.Context(), mutant{name: "any", file: "other/other.go", old: "\tOne = 1\n"}); err == nil {
		t.Error("try with a suite that fails without any mutant = nil")
	}
}

func TestReport(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	caught, lives := fate{mutant: mutant{name: "first"}, suite: "api", test: "TestX"}, fate{mutant: mutant{name: "second"}}
	if err := report(&b, []fate{caught}); err != nil {
		t.Errorf("report of what was caught = %v", err)
	}
	if err := report(&b, []fate{caught, lives}); err == nil || !strings.Contains(b.String(), "SURVIVES") {
		t.Errorf("report of a survivor = %v and\n%s", err, b.String())
	}
}
