package api_test

import (
	"strings"
	"testing"
)

// invalid is a body that is refused for its values.
type invalid struct {
	name   string
	body   string
	faults []string // each "field code message"
}

// refuseValues checks that each body is refused with all its faults, and changes
// nothing.
func (f *fixture) refuseValues(t *testing.T, method, path string, rows []invalid) {
	t.Helper()
	before := f.stored(t)
	for _, tt := range rows {
		step(t, tt.name, func(t *testing.T) {
			f.do(t, method, path, tt.body).refused(t, 422, "validation-failed", tt.faults...)
		})
	}
	f.unchanged(t, before)
}

// invalidIn writes what is said of a field whose value is invalid.
func invalidIn(field, says string) []string {
	name := field
	return []string{field + " invalid " + name + " " + says}
}

// notWhole are values of a field that counts, and no whole numbers.
var notWhole = []struct{ name, value string }{
	{"null", `null`},
	{"a numeral in quotes", `"5"`},
	{"an empty string", `""`},
	{"true", `true`},
	{"an array", `[5]`},
	{"an object", `{"value":5}`},
	{"a fraction", `1.5`},
	{"almost a whole number", `5.0000000000000000000000000001`},
	{"almost the next whole number", `4.99999999999999999999999999999`},
	{"a number too small for a float", `1e-400`},
	{"a number smaller than any machine's", `5e-999999999999999999999`},
}

// beyond are whole numbers that no field allows.
var beyond = []struct{ name, value string }{
	{"zero", `0`},
	{"minus zero", `-0`},
	{"zero with an exponent", `0e999999999`},
	{"minus one", `-1`},
	{"a large number", `43201`},
	{"a number beyond 32 bits", `8000000000000`},
	{"a number whose nanoseconds overflow", `9223372037`},
	{"a number whose milliseconds overflow", `9223372036854776`},
	{"the largest number of 64 bits", `9223372036854775807`},
	{"a number beyond 64 bits", `99999999999999999999`},
	{"a number beyond 64 bits below zero", `-99999999999999999999`},
	{"a number that wraps to 1 in 64 bits", `18446744073709551617`},
	{"a number of 19 digits with decimals", `1234567890123456789.0`},
	{"a number too large for a float", `1e400`},
	{"a number too small for a float", `-1e400`},
	{"a number larger than any machine's", `1e999999999`},
	{"a number with an exponent beyond 64 bits", `1e99999999999999999999`},
	{"a number with a thousand digits", strings.Repeat("9", 1_000)},
}

// integerRows are bodies with a whole number out of order. The body has VALUE in
// the place of the number.
func integerRows(with, field, rangeText string) []invalid {
	var rows []invalid
	for _, v := range notWhole {
		rows = append(rows, invalid{
			field + " is " + v.name, strings.ReplaceAll(with, "VALUE", v.value), invalidIn(field, "must be a whole number."),
		})
	}
	for _, v := range beyond {
		rows = append(rows, invalid{
			field + " is out of range: " + v.name, strings.ReplaceAll(with, "VALUE", v.value), invalidIn(field, rangeText),
		})
	}
	return rows
}

// secondsRows are bodies with a number of seconds out of order, where decimals to
// the millisecond are in order.
func secondsRows(with, field, rangeText string, outside ...string) []invalid {
	var rows []invalid
	add := func(what, value, says string) {
		rows = append(rows, invalid{
			field + " is " + what + " " + value, strings.ReplaceAll(with, "VALUE", value), invalidIn(field, says),
		})
	}
	for _, value := range []string{`null`, `"5"`, `""`, `true`, `[5]`, `{}`} {
		add("no number:", value, "must be a number of seconds.")
	}
	for _, value := range []string{
		`0.0015`, `1.0001`, `1e-4`, `1e-400`, `1e-999999999`, `-0.0001`,
		`5.00000000000000000001`,
	} {
		add("finer than a millisecond:", value, "must have at most 3 decimals: it counts to the millisecond.")
	}
	outside = append(outside, `1e12`, `9223372037`, `9223372036854775807`, `99999999999999999999`, `1e400`, `1e999999999`,
		`-1`, `-0.001`, `-1e400`, `-1e999999999`, `-99999999999999999999`)
	for _, value := range outside {
		add("out of range:", value, rangeText)
	}
	return rows
}

// receiptRows are bodies whose receipt is no receipt. The body has VALUE in its
// place.
func receiptRows(with string) []invalid {
	rows := []invalid{
		{"the receipt is empty", `""`, invalidIn("receipt", "must not be empty.")},
		{"the receipt is null", `null`, invalidIn("receipt", "must be a string.")},
		{"the receipt is a number", `17`, invalidIn("receipt", "must be a string.")},
		{"the receipt is an array", `["x"]`, invalidIn("receipt", "must be a string.")},
		{"the receipt is an object", `{}`, invalidIn("receipt", "must be a string.")},
		{"the receipt is false", `false`, invalidIn("receipt", "must be a string.")},
		{
			"the receipt has 201 characters", `"` + strings.Repeat("中", 201) + `"`,
			[]string{"receipt too_long receipt must have at most 200 characters."},
		},
		{
			"the receipt has 300,000 characters", `"` + strings.Repeat("r", 300_000) + `"`,
			[]string{"receipt too_long receipt must have at most 200 characters."},
		},
	}
	for i := range rows {
		rows[i].body = strings.ReplaceAll(with, "VALUE", rows[i].body)
	}
	return rows
}
