package stories

import (
	"maps"
	"testing"
)

func TestMatch(t *testing.T) {
	t.Parallel()
	const at = "2026-11-30T13:00:00.000Z"
	for _, tt := range []struct {
		name, want, got string
		ok              bool
	}{
		{"the same", `{"a":[1,"x",null,true]}`, `{"a":[1,"x",null,true]}`, true},
		{"more than is spoken of", `{"a":1}`, `{"a":1,"b":2}`, true},
		{"less than is spoken of", `{"a":1,"b":null}`, `{"a":1}`, false},
		{"another text", `{"a":"x"}`, `{"a":"y"}`, false},
		{"a number for a text", `{"a":"1"}`, `{"a":1}`, false},
		{"a text for a number", `{"a":1}`, `{"a":"1"}`, false},
		{"a number written otherwise", `{"a":1}`, `{"a":1.0}`, true},
		{"another number", `{"a":1}`, `{"a":2}`, false},
		{"something for null", `{"a":null}`, `{"a":0}`, false},
		{"null for something", `{"a":0}`, `{"a":null}`, false},
		{"more items", `[1]`, `[1,2]`, false},
		{"fewer items", `[1,2]`, `[1]`, false},
		{"items in another order", `[1,2]`, `[2,1]`, false},
		{
			"faults in another order", `{"errors":[{"field":"a"},{"field":"b"}]}`,
			`{"errors":[{"field":"b"},{"field":"a"}]}`, true,
		},
		{"an object for an array", `[]`, `{}`, false},
		{"an array for an object", `{}`, `[]`, false},
		{"absent", `{"a":"@absent"}`, `{}`, true},
		{"not absent", `{"a":"@absent"}`, `{"a":null}`, false},
		{"anything", `{"a":"@any"}`, `{"a":{}}`, true},
		{"anything but null", `{"a":"@any"}`, `{"a":null}`, false},
		{"a time", `"@time"`, `"` + at + `"`, true},
		{"a time without its zeros", `"@time"`, `"2026-11-30T13:00:00Z"`, false},
		{"a time elsewhere", `"@time"`, `"2026-11-30T13:00:00.000+01:00"`, false},
		{"a known value", `"$id"`, `"msg_1"`, true},
		{"another value than the known one", `"$id"`, `"msg_2"`, false},
		{"a value to be known", `["$new","$new"]`, `["a","a"]`, true},
		{"two values of one name", `["$new","$new"]`, `["a","b"]`, false},
		{"an empty value", `"$new"`, `""`, false},
		{"no text for a value", `"$new"`, `1`, false},
	} {
		want, err := decode([]byte(tt.want))
		if err != nil {
			t.Fatal(err)
		}
		got, err := decode([]byte(tt.got))
		if err != nil {
			t.Fatal(err)
		}
		known := values{"id": "msg_1"}
		if err := maps.Clone(known).match("", want, got); (err == nil) != tt.ok {
			t.Errorf("%s: match(%s, %s) = %v, want a match: %t", tt.name, tt.want, tt.got, err, tt.ok)
		}
	}
}
