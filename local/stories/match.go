package stories

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// decode reads JSON and keeps its numbers as they are written.
func decode(text []byte) (any, error) {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	var value any
	err := dec.Decode(&value)
	return value, err
}

// match reports where got is not what want describes; names that want gives to
// unknown values become known.
func (v values) match(path string, want, got any) error {
	switch want := want.(type) {
	case string:
		return v.matchText(path, want, got)
	case map[string]any:
		object, ok := got.(map[string]any)
		if !ok {
			return differs(path, want, got)
		}
		return v.matchObject(path, want, object)
	case []any:
		array, ok := got.([]any)
		if !ok {
			return differs(path, want, got)
		}
		return v.matchArray(path, want, array)
	case json.Number:
		if number, ok := got.(json.Number); !ok || !sameNumber(want, number) {
			return differs(path, want, got)
		}
	default: // null, true, false
		if want != got {
			return differs(path, want, got)
		}
	}
	return nil
}

func (v values) matchText(path, want string, got any) error {
	text, isText := got.(string)
	switch {
	case want == "@any":
		if got == nil {
			return differs(path, want, got)
		}
	case want == "@time":
		const format = "2006-01-02T15:04:05.000Z"
		if at, err := time.Parse(format, text); err != nil || at.Format(format) != text {
			return differs(path, want, got)
		}
	case reference.FindString(want) == want && want != "":
		known, ok := v[want[1:]]
		if !isText || text == "" || ok && known != text {
			return differs(path, want+" = "+strconv.Quote(known), got)
		}
		v[want[1:]] = text
	case !isText || text != want:
		return differs(path, want, got)
	}
	return nil
}

func (v values) matchObject(path string, want, got map[string]any) error {
	// In a fixed order, so that a failure reads the same each time.
	names := make([]string, 0, len(want))
	for name := range want {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		value, has := got[name]
		if want[name] == "@absent" {
			if has {
				return differs(path+"."+name, "@absent", value)
			}
			continue
		}
		if !has {
			return fmt.Errorf("%s.%s is missing, want %s", path, name, render(want[name]))
		}
		if err := v.match(path+"."+name, want[name], value); err != nil {
			return err
		}
	}
	return nil
}

func (v values) matchArray(path string, want, got []any) error {
	if len(want) != len(got) {
		return fmt.Errorf("%s has %d items, want %d", path, len(got), len(want))
	}
	if path == ".errors" { // no order is promised for the faults of a request
		want, got = byField(want), byField(got)
	}
	for i := range want {
		if err := v.match(fmt.Sprintf("%s[%d]", path, i), want[i], got[i]); err != nil {
			return err
		}
	}
	return nil
}

func byField(faults []any) []any {
	key := func(fault any) string {
		f, _ := fault.(map[string]any)
		return fmt.Sprint(f["field"], " ", f["code"])
	}
	return slices.SortedFunc(slices.Values(faults), func(a, b any) int { return strings.Compare(key(a), key(b)) })
}

func sameNumber(a, b json.Number) bool {
	x, errX := a.Float64()
	y, errY := b.Float64()
	return a == b || errX == nil && errY == nil && x == y
}

func differs(path string, want, got any) error {
	return fmt.Errorf("%s is %s, want %s", path, render(got), render(want))
}

func render(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		return fmt.Sprint(value)
	}
	return shorten(text)
}
