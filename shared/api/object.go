package api

import (
	"bytes"
	"errors"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/redrivehq/redrive/shared/message"
)

// object is a JSON object whose members are being read, one by one. What is
// wrong with them is collected, so that the client hears of everything at once.
type object struct {
	path    string // of the object within the body, ending in a dot; empty for the body
	members []member
	faults  *[]message.Fault
}

type member struct {
	name  string
	value jsontext.Value
	taken bool // read, or found to be at fault
}

// object reads the body, which must be one JSON object. A body that may be
// missing counts as an empty one.
func (req *request) object(mayBeMissing bool) (*object, error) {
	raw, err := req.body()
	if err != nil {
		return nil, err
	}
	if len(raw) == 0 {
		if !mayBeMissing {
			return nil, refuse(errMalformed, "The body is empty; it must be a JSON object.")
		}
		raw = []byte("{}")
	}
	return readObject(raw, "", &[]message.Fault{})
}

// readObject takes the text apart. It is strict, as RFC 7493 (I-JSON) is: UTF-8,
// no lone surrogates, no name twice, at any depth.
func readObject(raw []byte, path string, faults *[]message.Fault) (*object, error) {
	if bytes.HasPrefix(raw, []byte("\ufeff")) {
		return nil, refuse(errMalformed, "The body begins with a byte order mark; it must be plain UTF-8.")
	}
	dec := jsontext.NewDecoder(bytes.NewBuffer(raw)) // reads from a buffer in place, where it copies from other readers
	if dec.PeekKind() != jsontext.KindBeginObject {
		return nil, refuse(errMalformed, "The body must be a JSON object in UTF-8.")
	}
	members, err := readMembers(dec, raw)
	if err == nil {
		if _, err = dec.ReadToken(); err == nil {
			return nil, refuse(errMalformed, "The body must be one JSON object, with nothing after it.")
		}
	}
	if errors.Is(err, io.EOF) {
		return &object{path: path, members: members, faults: faults}, nil
	}
	near := dec.InputOffset()
	if syntax, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		near = syntax.ByteOffset
	}
	if errors.Is(err, jsontext.ErrDuplicateName) {
		return nil, refuse(errMalformed, "The body gives a name twice, near byte %d.", near)
	}
	return nil, refuse(errMalformed, "The body is not well-formed JSON near byte %d:"+
		" it must be one object in UTF-8, without lone surrogates.", near)
}

// readMembers reads an object from its opening to its closing brace.
func readMembers(dec *jsontext.Decoder, raw []byte) ([]member, error) {
	var members []member
	if _, err := dec.ReadToken(); err != nil {
		return nil, err
	}
	for dec.PeekKind() != jsontext.KindEndObject {
		name, err := dec.ReadToken()
		if err != nil {
			return nil, err
		}
		m := member{name: name.String()}
		value, err := dec.ReadValue()
		if err != nil {
			return nil, err
		}
		end := dec.InputOffset() // what was read is only lent; the same stands in raw
		m.value = raw[end-int64(len(value)) : end]
		members = append(members, m)
	}
	_, err := dec.ReadToken()
	return members, err
}

// check returns everything that is wrong: the faults found while reading, those
// of the values, and the members that nobody asked for.
func (o *object) check(faults []message.Fault) error {
	all := append(*o.faults, faults...)
	all = append(all, o.unknown()...)
	if len(all) == 0 {
		return nil
	}
	return &message.ValidationError{Faults: all}
}

// longestName is how much of a name that nobody knows is repeated to the client.
const longestName = 100

func (o *object) unknown() []message.Fault {
	var faults []message.Fault
	for i := range o.members {
		if m := &o.members[i]; !m.taken {
			m.taken = true
			field := o.path + message.CutError(m.name, longestName)
			faults = append(faults, message.Fault{Field: field, Code: message.CodeUnknown, Message: field + " is not known."})
		}
	}
	return faults
}

// find returns the member; nil if it is missing.
func (o *object) find(name string) *member {
	for i := range o.members {
		if o.members[i].name == name {
			return &o.members[i]
		}
	}
	return nil
}

func (o *object) fault(name string, code message.Code, says string) {
	*o.faults = append(*o.faults, message.Fault{
		Field: o.path + name, Code: code, Message: o.path + name + " " + says,
	})
}

// take hands out a member of the kind given, once. A missing one is nil; one of
// another kind is a fault, and nil.
func (o *object) take(name string, kind jsontext.Kind, says string) jsontext.Value {
	m := o.find(name)
	if m == nil {
		return nil
	}
	m.taken = true
	if m.value.Kind() != kind {
		o.fault(name, message.CodeInvalid, says)
		return nil
	}
	return m.value
}

// require adds a fault if the member is missing.
func (o *object) require(name string) {
	if o.find(name) == nil {
		o.fault(name, message.CodeRequired, "is required.")
	}
}

// ignore passes over members that are accepted and have no effect.
func (o *object) ignore(names ...string) {
	for _, name := range names {
		if m := o.find(name); m != nil {
			m.taken = true
		}
	}
}

// null takes the member if it is null.
func (o *object) null(name string) bool {
	m := o.find(name)
	if m == nil || m.value.Kind() != jsontext.KindNull {
		return false
	}
	m.taken = true
	return true
}

func (o *object) text(name string) *string {
	value := o.take(name, jsontext.KindString, "must be a string.")
	if value == nil {
		return nil
	}
	text, err := jsontext.AppendUnquote(nil, value)
	if err != nil { // not so: the decoder has read it
		o.fault(name, message.CodeInvalid, "must be a string.")
		return nil
	}
	return new(string(text))
}

func (o *object) boolean(name string) *bool {
	m := o.find(name)
	if m == nil {
		return nil
	}
	m.taken = true
	switch m.value.Kind() {
	case jsontext.KindTrue:
		return new(true)
	case jsontext.KindFalse:
		return new(false)
	default:
		o.fault(name, message.CodeInvalid, "must be true or false.")
		return nil
	}
}

// integer reads a number with an integral value, however it is written.
func (o *object) integer(name string) *int {
	value := o.take(name, jsontext.KindNumber, "must be a whole number.")
	if value == nil {
		return nil
	}
	n, exact := thousandths(string(value))
	if !exact || n%1000 != 0 {
		o.fault(name, message.CodeInvalid, "must be a whole number.")
		return nil
	}
	return new(int(n / 1000))
}

// wholeSeconds reads a duration in seconds without decimals.
func (o *object) wholeSeconds(name string) *time.Duration {
	n := o.integer(name)
	if n == nil {
		return nil
	}
	return new(millis(int64(*n) * 1000))
}

// seconds reads a duration in seconds, with decimals to the millisecond.
func (o *object) seconds(name string) *time.Duration {
	m := o.find(name)
	if m == nil {
		return nil
	}
	m.taken = true
	d, fault := readSeconds(m.value)
	if fault != "" {
		o.fault(name, message.CodeInvalid, fault)
		return nil
	}
	return &d
}

// readSeconds returns what is wrong with the value, or the duration.
func readSeconds(value jsontext.Value) (d time.Duration, fault string) {
	if value.Kind() != jsontext.KindNumber {
		return 0, "must be a number of seconds."
	}
	n, exact := thousandths(string(value))
	if !exact {
		return 0, "must have at most 3 decimals: it counts to the millisecond."
	}
	return millis(n), ""
}

func (o *object) float(name string) *float64 {
	value := o.take(name, jsontext.KindNumber, "must be a number.")
	if value == nil {
		return nil
	}
	n, _ := strconv.ParseFloat(string(value), 64) // what is out of its range becomes infinite, and so a fault
	return &n
}

// list reads an array of durations in seconds.
func (o *object) list(name string) []time.Duration {
	value := o.take(name, jsontext.KindBeginArray, "must be an array of seconds.")
	if value == nil {
		return nil
	}
	var items []jsontext.Value
	if err := json.Unmarshal(value, &items); err != nil { // not so: the decoder has read it
		o.fault(name, message.CodeInvalid, "must be an array of seconds.")
		return nil
	}
	items = items[:min(len(items), message.MaxSchedule+1)] // one too many is enough to refuse
	delays := make([]time.Duration, 0, len(items))
	for i, item := range items {
		d, fault := readSeconds(item)
		if fault != "" {
			o.fault(name+"["+strconv.Itoa(i)+"]", message.CodeInvalid, fault)
			d = time.Second // in its place: it is a fault already
		}
		delays = append(delays, d)
	}
	return delays
}

// object reads an object inside the object; nil if it is missing.
func (o *object) object(name string) *object {
	value := o.take(name, jsontext.KindBeginObject, "must be an object.")
	if value == nil {
		return nil
	}
	inner, err := readObject(value, o.path+name+".", o.faults)
	if err != nil { // not so: the decoder has read it
		o.fault(name, message.CodeInvalid, "must be an object.")
		return nil
	}
	return inner
}

// millis makes a duration of milliseconds, cut to far beyond any limit.
func millis(n int64) time.Duration {
	const most = 100 * 365 * 24 * 60 * 60 * 1000 // a hundred years, which a Duration can hold
	return time.Duration(max(min(n, most), -most)) * time.Millisecond
}

// thousandths reads a JSON number as so many thousandths, without passing
// through a float. Exact is false if it has more decimals; a number too large to
// hold becomes the largest.
func thousandths(number string) (n int64, exact bool) {
	number, negative := strings.CutPrefix(number, "-")
	mantissa, exponent, _ := strings.Cut(strings.ToLower(number), "e")
	whole, decimals, _ := strings.Cut(mantissa, ".")
	shift, _ := strconv.Atoi(exponent) // an overflow saturates
	const far = 1 << 30
	shift = max(min(shift, far), -far) + 3 - len(decimals)
	digits := strings.TrimLeft(whole+decimals, "0")
	significant := strings.TrimRight(digits, "0")
	shift += len(digits) - len(significant)
	const mostDigits = 18
	switch {
	case significant == "":
		return 0, true
	case shift < 0:
		return 0, false
	case len(significant)+shift > mostDigits:
		n = math.MaxInt64 / 1000 * 1000 // whole, as any number of that size
	default:
		n, _ = strconv.ParseInt(significant+strings.Repeat("0", shift), 10, 64) // 18 digits fit
	}
	if negative {
		n = -n
	}
	return n, true
}
