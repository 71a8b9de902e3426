package api

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// maxQueueName is in bytes of UTF-8.
const maxQueueName = 128

// queueNameFault says which rule a queue's name breaks; empty if none. An HTTP
// API decodes the path before it routes, so a name cannot hold what a path gives
// a meaning to. DynamoDB's keys are bytes: two spellings of one text would be two
// queues, hence NFC.
func queueNameFault(name string) string {
	switch {
	case name == "":
		return "must not be empty"
	case len(name) > maxQueueName:
		return "must have at most 128 bytes of UTF-8"
	case !utf8.ValidString(name), strings.ContainsRune(name, utf8.RuneError):
		// An event is JSON: bytes that are no UTF-8 arrive as U+FFFD, whichever they
		// were, and many names would become one.
		return "must be UTF-8 without U+FFFD"
	case strings.ContainsAny(name, `/\?#%`):
		return `must not contain any of / \ ? # %`
	case strings.ContainsFunc(name, unicode.IsControl):
		return "must not contain control characters"
	case name == "." || name == "..":
		return "must not be . or .."
	case strings.TrimSpace(name) != name:
		return "must not begin or end with a blank"
	case !norm.NFC.IsNormalString(name):
		return "must be in Unicode normalization form C (NFC)"
	}
	return ""
}

// checkQueueName refuses a name that breaks a rule, and says which.
func checkQueueName(name string) error {
	if rule := queueNameFault(name); rule != "" {
		return refuse(errBadRequest, "The queue name %s.", rule)
	}
	return nil
}

// maxKey is in characters.
const maxKey = 255

// idempotencyKey reads the header Idempotency-Key; empty if it is not given. The
// key may be bare, or a quoted string of RFC 9651, section 3.3.3. A comma would
// be two headers that API Gateway has joined.
func (req *request) idempotencyKey() (string, error) {
	value, given := req.header("idempotency-key")
	if !given {
		return "", nil
	}
	key, ok := value, true
	if strings.HasPrefix(value, `"`) {
		key, ok = unquoteString(value)
	}
	invisible := func(r rune) bool { return r <= ' ' || r > '~' || r == ',' }
	if !ok || key == "" || len(key) > maxKey || strings.ContainsFunc(key, invisible) {
		return "", refuse(errBadRequest, "Idempotency-Key must be 1 to %d visible ASCII characters without a comma,"+
			" bare or as a quoted string.", maxKey)
	}
	return key, nil
}

// unquoteString reads a quoted string of RFC 9651: only \" and \\ are escapes.
func unquoteString(quoted string) (text string, ok bool) {
	var b strings.Builder
	for i := 1; i < len(quoted); i++ {
		switch c := quoted[i]; c {
		case '"':
			return b.String(), i == len(quoted)-1
		case '\\':
			i++
			if i == len(quoted) || quoted[i] != '"' && quoted[i] != '\\' {
				return "", false
			}
			b.WriteByte(quoted[i])
		default:
			b.WriteByte(c)
		}
	}
	return "", false
}
