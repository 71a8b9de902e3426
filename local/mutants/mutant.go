package main

import (
	"embed"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// mutant is one fault: some lines of a file and what they become.
type mutant struct {
	name     string // what is wrong, in words
	file     string // from the root of the repository, with slashes
	why      string // what the fault would do to people
	old, now string // whole lines; old stands in the file exactly once
}

//go:embed faults/*.txt
var faults embed.FS

// mutants returns all of them.
func mutants() ([]mutant, error) {
	files, err := faults.ReadDir("faults")
	if err != nil {
		return nil, err
	}
	var all []mutant
	for _, file := range files {
		name := path.Join("faults", file.Name())
		text, err := faults.ReadFile(name)
		if err != nil {
			return nil, err
		}
		list, err := parse(string(text))
		if err != nil {
			return nil, fmt.Errorf("%s:%w", name, err)
		}
		all = append(all, list...)
	}
	return all, nil
}

// parse reads mutants in the form that faults/rules.txt explains. Errors begin
// with the number of the line.
func parse(text string) ([]mutant, error) {
	var list []mutant
	var m *mutant
	for i, line := range strings.Split(text, "\n") {
		name, begins := strings.CutPrefix(line, "== ")
		switch {
		case line == "" || line[0] == '#':
		case begins:
			list = append(list, mutant{name: name})
			m = &list[len(list)-1]
		case m == nil:
			return nil, fmt.Errorf("%d: this belongs to no mutant: its first line is == and its name", i+1)
		case line[0] == '-' && m.now == "":
			m.old += line[1:] + "\n"
		case line[0] == '+' && m.old != "":
			m.now += line[1:] + "\n"
		case m.file == "" && strings.Contains(line, ": "):
			m.file, m.why, _ = strings.Cut(line, ": ")
		default:
			return nil, fmt.Errorf("%d: a mutant is its name, file: why, lines with - and then lines with +", i+1)
		}
	}
	return list, nil
}

// check reports whether the mutant can be applied to the repository at root.
func (m mutant) check(root string) error {
	_, err := m.mutated(root)
	return err
}

// apply puts the fault into the repository at root.
func (m mutant) apply(root string) error {
	text, err := m.mutated(root)
	if err != nil {
		return err
	}
	return write(m.path(root), []byte(text))
}

// mutated returns the file with the fault in it.
func (m mutant) mutated(root string) (string, error) {
	text, err := os.ReadFile(m.path(root))
	if err != nil {
		return "", fmt.Errorf("%s: the list has rotted: %w", m.name, err)
	}
	before, after, found := strings.Cut("\n"+string(text), "\n"+m.old)
	switch {
	case m.old == "" || !found:
		return "", fmt.Errorf("%s: the list has rotted: its lines are not in %s", m.name, m.file)
	case strings.Contains("\n"+after, "\n"+m.old):
		return "", fmt.Errorf("%s: its lines stand in %s more than once: add those before or behind", m.name, m.file)
	}
	return strings.TrimPrefix(before+"\n"+m.now+after, "\n"), nil
}

func (m mutant) path(root string) string { return filepath.Join(root, filepath.FromSlash(m.file)) }
