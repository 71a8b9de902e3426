package api

import (
	"math"
	"math/big"
	"mime"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"github.com/redrivehq/redrive/shared/message"
)

// FuzzThousandths reads any JSON number and compares it with what exact
// arithmetic makes of it.
func FuzzThousandths(f *testing.F) {
	for _, text := range []string{
		"0", "-0", "3.0", "1e3", "1E+2", "0.001", "0.0001", "1e-4", "10e-4", "-1.5", "9007199254740993", "1e400", "-1e400",
		"1e-400", "0e999999999999999999999", "100000000000000000000e-20", "999999999999999.999", "1000000000000000.001",
		"1e99999999999999999999", "1e-99999999999999999999", "0.1e1", "31536000.0010", // S020
	} {
		f.Add(text)
	}
	number := regexp.MustCompile(`\A-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]{1,3})?\z`) // longer exponents take long
	f.Fuzz(func(t *testing.T, text string) {
		n, exact := thousandths(text)
		if !number.MatchString(text) || len(text) > 1_000 {
			return
		}
		want, _ := new(big.Rat).SetString(text)
		want.Mul(want, big.NewRat(1000, 1))
		if exact != want.IsInt() {
			t.Fatalf("thousandths(%q) = %d, %t; the number is %s", text, n, exact, want.RatString())
		}
		if !exact {
			return
		}
		largest := int64(math.MaxInt64 / 1000 * 1000)
		got := big.NewRat(n, 1)
		switch tooLarge := new(big.Rat).Abs(want).Cmp(big.NewRat(1e18, 1)) >= 0; {
		case tooLarge && (want.Sign() > 0) == (n == largest) && (want.Sign() < 0) == (n == -largest):
		case tooLarge || got.Cmp(want) != 0:
			t.Errorf("thousandths(%q) = %d, want %s", text, n, want.RatString())
		}
		if d := millis(n); (d < 0) != (n < 0) || d%time.Millisecond != 0 {
			t.Errorf("millis(%d) = %v", n, d)
		}
	})
}

// FuzzPosition writes any position as a cursor and reads it, and reads cursors
// that are forged: the checksum is no secret. None leads to a place that a store
// could not have named.
func FuzzPosition(f *testing.F) {
	const id = "msg_01KB9Z0000000000000000000A"
	scope := scopeOf("messages", "q", "", "asc")
	genuine := sealPlace(scope, message.Position{Status: message.Dead, Due: time.UnixMilli(1_767_225_600_000), ID: id})
	for _, position := range []string{
		"", "\x00", "\x00\x00\x00\x00\x00\x00\x00\x00\x00", "\x03\x00\x00\x01\x9b\x76\xda\xa8\x00" + id,
		"\x04\x00\x00\x00\x00\x00\x00\x00\x00" + id,
		"\x00\xff\xff\xff\xff\xff\xff\xff\xff" + id, "\x00\x00\x00\x09\x18\x4e\x72\xa0\x00" + id,
		"\x00\x00\x00\x00\x00\x00\x00\x00\x00msg_",
	} {
		f.Add(scope, position, genuine, int64(1_767_225_600_000))
		f.Add("queues", position, seal("queues", "a"), int64(0))
	}
	f.Fuzz(func(t *testing.T, scope, position, cursor string, due int64) {
		forged := seal(scope, position)
		for _, c := range []string{forged, cursor} {
			at, err := unsealPlace(scope, c)
			if err != nil {
				continue
			}
			if !slices.Contains(message.Statuses(), at.Status) || !message.IsID(at.ID) ||
				at.Due.Before(time.UnixMilli(0)) || !at.Due.Before(time.UnixMilli(1e13)) {
				t.Errorf("%q leads to %+v", c, at)
			}
			if again := sealPlace(scope, *at); again != c {
				t.Errorf("%q leads to %+v, whose cursor is %q", c, at, again)
			}
		}
		if got, err := unseal(scope, forged); len(forged) <= maxCursor && position != "" && (got != position || err != nil) {
			t.Errorf("unseal(%q) = %q, %v, want %q", forged, got, err, position)
		}
		if _, err := unseal(scope+"x", forged); err == nil {
			t.Errorf("the cursor %q of %q is good for another list", forged, scope)
		}
		if url.QueryEscape(forged) != forged {
			t.Errorf("the cursor %q is not safe in a URL", forged)
		}
		if due < 0 || due >= 1e13 {
			return
		}
		for _, status := range message.Statuses() {
			want := message.Position{Status: status, Due: time.UnixMilli(due).UTC(), ID: id}
			if got, err := unsealPlace(scope, sealPlace(scope, want)); err != nil || *got != want {
				t.Errorf("%+v comes back as %+v, %v", want, got, err)
			}
		}
	})
}

// FuzzMatch routes any method and path, and compares with patterns that say the
// same.
func FuzzMatch(f *testing.F) {
	patterns := make([]*regexp.Regexp, len(Routes))
	for i, r := range Routes {
		pattern := strings.NewReplacer("{queue}", "([^/]+)", "{id}", "([^/]+)").Replace(r.path())
		patterns[i] = regexp.MustCompile(`\A(?s:` + pattern + `)\z`)
		f.Add(r.method(), strings.NewReplacer("{queue}", "a b", "{id}", "msg_1").Replace(r.path()), "prod")
	}
	for _, path := range []string{ // S001, S002, S009, S011
		"", "/", "//", "/queues/", "/queues//messages", "/queues/a/messages/", "/queues/a/b/messages", "queues", "/Queues",
		"/queues/a\n/claim",
		"/prod/queues/prod/messages", "/prod", "/queues/queues/claim", "/queues/{queue}/claim",
	} {
		f.Add("POST", path, "prod")
		f.Add("GET", path, "$default")
	}
	f.Fuzz(func(t *testing.T, method, path, stage string) {
		route, params, ok := Match(method, path)
		var allowing []string
		for i, r := range Routes {
			values := patterns[i].FindStringSubmatch(path)
			if values == nil {
				continue
			}
			allowing = append(allowing, r.method())
			if r.method() != method {
				continue
			}
			if !ok || route.Key != r.Key || len(params) != len(values)-1 || len(values) > 1 && params["queue"] != values[1] ||
				len(values) > 2 && params["id"] != values[2] {
				t.Errorf("Match(%q, %q) = %s, %q, %t, want %s, %q", method, path, route.Key, params, ok, r.Key, values[1:])
			}
		}
		if ok != slices.Contains(allowing, method) {
			t.Errorf("Match(%q, %q) = %s, %t, and the path allows %q", method, path, route.Key, ok, allowing)
		}
		e := events.APIGatewayV2HTTPRequest{RawPath: path}
		if got, want := allowed(e), strings.Join(allowing, ", "); got != want {
			t.Errorf("%q allows %q, want %q", path, got, want)
		}
		// With a stage in front it is the same path, whatever its segments are.
		if e.RequestContext.Stage = stage; stage == "" || stage == "$default" || !strings.HasPrefix(path, "/") {
			return
		}
		if e.RawPath = "/" + stage + path; pathOf(e) != path {
			t.Errorf("%q below stage %q is %q", e.RawPath, stage, pathOf(e))
		}
		if e.RawPath = "/" + stage + "x" + path; pathOf(e) != e.RawPath {
			t.Errorf("%q is not below stage %q, and is %q", e.RawPath, stage, pathOf(e))
		}
	})
}

// FuzzQuery reads any query string: it is refused, or gives each known parameter
// at most once, and a limit is a number in its range.
func FuzzQuery(f *testing.F) {
	for _, text := range []string{ // S010, S032
		"", "limit=1", "limit=250", "limit=251", "limit=0", "limit=%2B1", "limit=1_0", "limit=0x1", "limit=٣", "limit=",
		"limit", "limit=1&limit=2",
		"limit=1&x=2", "a;b=1", "%zz", "cursor=ab%2Bcd%2F%3D", "&&", "=1", "limit=00000000000000000000001", "\xff=\xfe",
		"order=desc&order=asc",
	} {
		f.Add(text)
	}
	known := []string{"limit", "cursor", "order"}
	f.Fuzz(func(t *testing.T, text string) {
		req := &request{event: events.APIGatewayV2HTTPRequest{RawQueryString: text}}
		values, parseErr := url.ParseQuery(text)
		good := parseErr == nil
		for name, given := range values {
			good = good && slices.Contains(known, name) && len(given) == 1
		}
		err := req.readQuery(known)
		if (err == nil) != good {
			t.Fatalf("readQuery(%q) = %v", text, err)
		}
		if err != nil {
			return
		}
		for _, name := range known {
			if got, ok := req.query[name]; ok != values.Has(name) || got != values.Get(name) {
				t.Errorf("%q: %s = %q, %t", text, name, got, ok)
			}
		}
		n, err := req.limit(50, 250)
		given, isGiven := req.query["limit"]
		isDigits := regexp.MustCompile(`\A0*([1-9][0-9]?|1[0-9][0-9]|2[0-4][0-9]|250)\z`).MatchString(given)
		if isGiven && (err == nil) != isDigits || n < 0 || n > 250 || !isGiven && n != 50 {
			t.Errorf("%q: limit = %d, %v", text, n, err)
		}
	})
}

// FuzzContentType asks of any media type whether it is JSON, and has any body
// read under it.
func FuzzContentType(f *testing.F) {
	for _, text := range []string{ // S004
		"application/json", "Application/JSON; charset=utf-8", "application/problem+json", "text/json", "application/json;",
		"application/json; charset", "application/json, application/json", "a+json", "+json", "", " ", ";",
		"application/jsonx",
	} {
		f.Add(text, []byte("{}"), true)
	}
	f.Fuzz(func(t *testing.T, contentType string, body []byte, encoded bool) {
		media, _, err := mime.ParseMediaType(contentType)
		if isJSON(contentType) && err == nil && media != "application/json" && !strings.HasSuffix(media, "+json") {
			t.Errorf("%q, which is %q, is taken for JSON", contentType, media)
		}
		req := &request{event: events.APIGatewayV2HTTPRequest{
			Body: string(body), IsBase64Encoded: encoded, Headers: map[string]string{"Content-Type": contentType},
		}}
		raw, err := req.body()
		switch {
		case err != nil:
		case len(raw) > maxBody || len(raw) > 0 && !isJSON(contentType):
			t.Errorf("%d bytes under %q are accepted", len(raw), contentType)
		case !encoded && string(raw) != string(body):
			t.Errorf("%.100q is read as %.100q", body, raw)
		}
	})
}

// FuzzQuotedString reads any text as a quoted string of RFC 9651: what is read,
// written again, is that text.
func FuzzQuotedString(f *testing.F) {
	for _, text := range []string{`"k"`, `"`, `""`, `"a\"b"`, `"a\\b"`, `"a\b"`, `"a"b"`, `"k";p`, `"\`, "", "k", "\xff"} {
		f.Add(text)
	}
	quote := strings.NewReplacer(`\`, `\\`, `"`, `\"`)
	f.Fuzz(func(t *testing.T, text string) {
		if !strings.HasPrefix(text, `"`) {
			text = `"` + quote.Replace(text) + `"`
			if got, ok := unquoteString(text); !ok || `"`+quote.Replace(got)+`"` != text {
				t.Errorf("unquoteString(%s) = %q, %t", text, got, ok)
			}
			return
		}
		if got, ok := unquoteString(text); ok && `"`+quote.Replace(got)+`"` != text {
			t.Errorf("unquoteString(%s) = %q", text, got)
		}
	})
}
