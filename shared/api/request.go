package api

import (
	"encoding/base64"
	"errors"
	"fmt"
	"mime"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/aws/aws-lambda-go/events"

	"github.com/redrivehq/redrive/shared/message"
)

// request is an event that is being answered.
type request struct {
	event events.APIGatewayV2HTTPRequest
	queue string            // the path's queue, once it is known to be a name
	id    string            // the message spoken of; for the log, also several joined by commas
	query map[string]string // those given
}

// The kinds of refusal that are about spelling. Each has a row in problems.
var (
	errBadRequest = errors.New("bad request")
	errMalformed  = errors.New("malformed body")
	errTooLarge   = errors.New("body too large")
	errMediaType  = errors.New("unsupported media type")
	errNoRoute    = errors.New("no such route")
	errMethod     = errors.New("method not allowed")
)

// refusal is a kind of error with a sentence for the client.
type refusal struct {
	kind   error
	detail string
}

func (r *refusal) Error() string { return r.kind.Error() + ": " + r.detail }
func (r *refusal) Unwrap() error { return r.kind }

func refuse(kind error, format string, args ...any) error {
	return &refusal{kind, fmt.Sprintf(format, args...)}
}

// eventVersion is the payload format that the handlers read. Another one has its
// path and method elsewhere: read as this, every request would be for "/".
const eventVersion = "2.0"

// check reads what every request has: the format of its event, its path and its
// query.
func (req *request) check(r Route) error {
	if v := req.event.Version; v != eventVersion {
		return refuse(errBadRequest, "The event has payload format version %q; this function reads %q."+
			" Set the version of the API Gateway integration.", v, eventVersion)
	}
	if strings.Contains(r.Key, "{queue}") {
		name := req.event.PathParameters["queue"]
		if err := checkQueueName(name); err != nil {
			return err
		}
		req.queue = name
	}
	if r.Function == Fallback {
		return nil // which route its query would belong to is not known
	}
	if err := req.readQuery(r.Query); err != nil {
		return err
	}
	if strings.Contains(r.Key, "{id}") {
		// What is no identifier names no message.
		if req.id = req.event.PathParameters["id"]; !message.IsID(req.id) {
			req.id = ""
			return message.ErrNotFound
		}
	}
	return nil
}

// readQuery reads the query as the client sent it. The map that API Gateway
// makes of it joins repeated parameters with commas.
func (req *request) readQuery(known []string) error {
	values, err := url.ParseQuery(req.event.RawQueryString)
	if err != nil {
		return refuse(errBadRequest, "The query string is not well-formed.")
	}
	var unknown, repeated []string
	req.query = make(map[string]string, len(values))
	for name, given := range values {
		switch {
		case !slices.Contains(known, name):
			unknown = append(unknown, strconv.Quote(name))
		case len(given) > 1:
			repeated = append(repeated, strconv.Quote(name))
		default:
			req.query[name] = given[0]
		}
	}
	var faults []string
	if len(unknown) > 0 {
		slices.Sort(unknown)
		faults = append(faults, "Unknown query parameters: "+strings.Join(unknown, ", ")+".")
	}
	if len(repeated) > 0 {
		slices.Sort(repeated)
		faults = append(faults, "Query parameters given more than once: "+strings.Join(repeated, ", ")+".")
	}
	if len(faults) > 0 {
		return refuse(errBadRequest, "%s", strings.Join(faults, " "))
	}
	return nil
}

// limit reads the parameter limit: plain digits, from 1 to most.
func (req *request) limit(usual, most int) (int, error) {
	text, given := req.query["limit"]
	if !given {
		return usual, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > most || strings.Trim(text, "0123456789") != "" {
		return 0, refuse(errBadRequest, "limit must be a whole number between 1 and %d.", most)
	}
	return n, nil
}

// choice reads a parameter that has only a few values; the first is the default.
func (req *request) choice(name string, values ...string) (string, error) {
	given, ok := req.query[name]
	switch {
	case !ok:
		return values[0], nil
	case !slices.Contains(values, given):
		return "", refuse(errBadRequest, "%s must be one of %s.", name, strings.Join(values, ", "))
	}
	return given, nil
}

// header returns the value of a header, whatever the case of its name: API
// Gateway writes them small, other callers may not.
func (req *request) header(name string) (value string, given bool) {
	if value, given = req.event.Headers[name]; given {
		return value, true
	}
	for key, value := range req.event.Headers {
		if strings.EqualFold(key, name) {
			return value, true
		}
	}
	return "", false
}

// maxBody is the longest request body, in bytes.
const maxBody = 1 << 20

// body returns the body's bytes. API Gateway sends what it takes for binary in
// base64.
func (req *request) body() ([]byte, error) {
	raw := []byte(req.event.Body)
	if req.event.IsBase64Encoded {
		if base64.StdEncoding.DecodedLen(len(raw)) > maxBody+2 { // exact but for the padding
			return nil, refuse(errTooLarge, "The request body has more than %d bytes.", maxBody)
		}
		var err error
		if raw, err = base64.StdEncoding.DecodeString(req.event.Body); err != nil {
			return nil, refuse(errMalformed, "The body of the event is not base64, though it says so.")
		}
	}
	if len(raw) > maxBody {
		return nil, refuse(errTooLarge, "The request body has more than %d bytes.", maxBody)
	}
	if given, ok := req.header("content-type"); ok && len(raw) > 0 && !isJSON(given) {
		return nil, refuse(errMediaType, "The body must be JSON: send it with content-type: application/json.")
	}
	return raw, nil
}

func isJSON(contentType string) bool {
	media, _, err := mime.ParseMediaType(contentType)
	return (err == nil || errors.Is(err, mime.ErrInvalidMediaParameter)) &&
		(media == typeJSON || strings.HasSuffix(media, "+json"))
}
