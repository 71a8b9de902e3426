package api_test

import (
	"encoding/base64"
	"strconv"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/aws/aws-lambda-go/events"
)

// target is a request that is answered with 2xx as long as its body is in order.
type target struct {
	verb, method, path string
	body               string
	mayBeEmpty         bool
}

// targets are the requests that take a body, on messages that allow them.
func targets(tb testing.TB, f *fixture) []target {
	tb.Helper()
	list := []target{
		{"enqueue", "POST", "/queues/emails/messages", `{"payload":"x"}`, false},
		{"replay", "POST", f.dead(tb).path() + "/replay", `{}`, true},
		{"put queue", "PUT", "/queues/emails", `{}`, true},
		{"delete queue", "DELETE", "/queues/empty", `{}`, true},
		{"claim", "POST", "/queues/claims/claim", `{}`, true},
	}
	for _, verb := range []string{"extend", "succeed", "fail", "release"} {
		held := f.processing(tb)
		with := body("receipt", held.Receipt)
		if verb == "fail" {
			with = body("receipt", held.Receipt, "error", "")
		}
		list = append(list, target{verb, "POST", held.path() + "/" + verb, with, verb == "succeed"})
	}
	f.enqueueOn(tb, "claims", "to be claimed")
	f.do(tb, "PUT", "/queues/empty", "{}").refusedNot(tb)
	return append(list, target{"delete", "DELETE", f.pending(tb).path(), `{}`, true})
}

// refusedNot checks that the answer is 2xx.
func (a answer) refusedNot(tb testing.TB) {
	tb.Helper()
	if a.status > 299 {
		tb.Fatalf("%s: status %d, want 2xx; body %.300s", a.asked, a.status, a.body)
	}
}

// utf16Text is the text as a client in UTF-16 would send it.
func utf16Text(text string) string {
	var b strings.Builder
	for _, unit := range utf16.Encode([]rune(text)) {
		b.WriteByte(byte(unit))
		b.WriteByte(byte(unit >> 8))
	}
	return b.String()
}

// malformed are bodies that are not one JSON object, in strict JSON. GOOD stands
// for a body that the route takes.
var malformed = []struct{ name, body string }{
	{"an array is no object", `[]`},
	{"an array around the object is no object", `[GOOD]`},
	{"a string is no object", `"payload"`},
	{"a number is no object", `1`},
	{"true is no object", `true`},
	{"null is no object", `null`},
	{"blanks are no object", " \n"},
	{"a second object follows", `GOODGOOD`},
	{"a word follows", `GOOD x`},
	{"a comma follows", `GOOD,`},
	{"a brace follows", `GOOD}`},
	{"a NUL follows", "GOOD\x00"},
	{"a byte order mark comes first", "\uFEFFGOOD"},
	{"a byte order mark follows", "GOOD\uFEFF"},
	{"a no-break space comes first", "\u00A0GOOD"},
	{"a name comes twice", `{"a":1,"a":1}`},
	{"a name comes twice, once with an escape", `{"a":1,"\u0061":2}`},
	{"a name comes twice inside", `{"a":{"b":1,"c":2,"b":1}}`},
	{"a name comes twice deep inside an array", `{"a":[[{"b":[{"c":1,"c":1}]}]]}`},
	{"a name comes twice, far apart", `{"a":1,` + strings.Repeat(" ", 5_000) + `"b":2,"a":3}`},
	{"a high surrogate stands alone", `{"a":"x\ud800y"}`},
	{"a low surrogate stands alone", `{"a":"\udc49"}`},
	{"the halves of a pair are swapped", `{"a":"\ude00\ud83d"}`},
	{"two high surrogates follow each other", `{"a":"\ud83d\ud83d\ude00"}`},
	{"a surrogate stands alone in a name", `{"\ud800":1}`},
	{"a surrogate stands alone deep inside", `{"a":[{"b":"\udfff"}]}`},
	{"the object is not closed", `{"a":1`},
	{"the string is not closed", `{"a":"b`},
	{"a comma is too many", `{"a":1,}`},
	{"a comma is missing", `{"a":1 "b":2}`},
	{"the name is bare", `{a:1}`},
	{"quotes are single", `{'a':1}`},
	{"a comment stands inside", `{"a":1/**/}`},
	{"a number begins with 0", `{"a":01}`},
	{"a number begins with +", `{"a":+1}`},
	{"a number ends in a point", `{"a":1.}`},
	{"a number begins with a point", `{"a":.5}`},
	{"a number is hexadecimal", `{"a":0x10}`},
	{"a number lacks its exponent", `{"a":1e}`},
	{"a number is not one", `{"a":NaN}`},
	{"a number is infinite", `{"a":-Infinity}`},
	{"a word is capitalised", `{"a":True}`},
	{"a line feed stands bare in a string", "{\"a\":\"b\nc\"}"},
	{"a NUL stands bare in a string", "{\"a\":\"\x00\"}"},
	{"an escape is unknown", `{"a":"\x41"}`},
	{"an escape is too short", `{"a":"\u00e"}`},
	{"arrays are nested 20,000 deep", `{"a":` + strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000) + `}`},
	{"objects are nested 11,000 deep", strings.Repeat(`{"a":`, 11_000) + "1" + strings.Repeat("}", 11_000)},
	{"it is a form", `payload=x`},
}

// notUTF8 are bodies that only come in base64.
var notUTF8 = []struct{ name, body string }{
	{"a byte 0xff stands in a string", "{\"a\":\"a\xffb\"}"},
	{"a byte 0xff stands in a name", "{\"\xff\":1}"},
	{"a byte 0xff follows", "GOOD\xff"},
	{"a character is cut short", "{\"a\":\"\xe4\xb8\"}"},
	{"a character is longer than it need be", "{\"a\":\"\xc0\xaf\"}"},
	{"a surrogate is written in three bytes", "{\"a\":\"\xed\xa0\x80\"}"},
	{"a character lies beyond U+10FFFF", "{\"a\":\"\xf4\x90\x80\x80\"}"},
	{"it is Latin-1", "{\"a\":\"caf\xe9\"}"},
	{"it is UTF-16", utf16Text(`{"payload":"x"}`)},
}

func TestMalformedBodyIsRefusedByEveryRoute(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, to := range targets(t, f) {
		step(t, to.verb, func(t *testing.T) {
			before := f.stored(t)
			for _, tt := range malformed {
				step(t, tt.name, func(t *testing.T) {
					text := strings.ReplaceAll(tt.body, "GOOD", to.body)
					f.do(t, to.method, to.path, text).refused(t, 400, "malformed-body")
					if to.verb == "enqueue" {
						f.do(t, to.method, to.path, text, inBase64).refused(t, 400, "malformed-body")
					}
				})
			}
			for _, tt := range notUTF8 {
				step(t, tt.name, func(t *testing.T) {
					text := strings.ReplaceAll(tt.body, "GOOD", to.body)
					f.do(t, to.method, to.path, text, inBase64).refused(t, 400, "malformed-body")
				})
			}
			if !to.mayBeEmpty {
				f.do(t, to.method, to.path, "").refused(t, 400, "malformed-body")
			}
			f.unchanged(t, before)
		})
	}
}

func TestBodyOfAnyUsualFormIsAccepted(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		body    string // GOOD stands for what the route takes
		changes []change
	}{
		{"plain", "GOOD", nil},
		{"with blanks around", " \r\n\tGOOD\n ", nil},
		{"in base64", "GOOD", []change{inBase64}},
		{"without a content type", "GOOD", []change{func(e *events.APIGatewayV2HTTPRequest) {
			delete(e.Headers,
				"content-type")
		}}},
		{"with a charset", "GOOD", []change{header("content-type", "application/json; charset=utf-8")}},
		{"with a parameter cut short", "GOOD", []change{header("content-type", "application/json; charset")}},
		{"with a capitalised type", "GOOD", []change{header("content-type", "Application/JSON")}},
		{"with a type that ends in +json", "GOOD", []change{header("content-type", "application/vnd.api+json;v=1")}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			for _, to := range targets(t, f) {
				f.do(t, to.method, to.path, strings.ReplaceAll(tt.body, "GOOD", to.body), tt.changes...).refusedNot(t)
			}
		})
	}
}

func TestVerbWithoutRequiredFieldTakesNoBody(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, to := range targets(t, f) {
		if to.mayBeEmpty {
			// A type without a body says nothing.
			f.do(t, to.method, to.path, "", header("content-type", "text/plain")).refusedNot(t)
		}
	}
}

func TestMediaTypeThatIsNotJSONIsRefusedByEveryRoute(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, to := range targets(t, f) {
		step(t, to.verb, func(t *testing.T) {
			before := f.stored(t)
			for _, media := range []string{
				"text/plain", "application/x-www-form-urlencoded", "application/octet-stream", "multipart/form-data; boundary=x",
				"application/jsonp", "application/json-seq", "text/json", "json", "application/", "*/*", "application/xml",
			} {
				f.do(t, to.method, to.path, to.body, header("content-type", media)).refused(t, 415, "unsupported-media-type")
			}
			f.do(t, to.method, to.path, to.body, func(e *events.APIGatewayV2HTTPRequest) {
				e.Headers = map[string]string{"Content-Type": "text/plain"}
			}).refused(t, 415, "unsupported-media-type")
			f.unchanged(t, before)
		})
	}
}

func TestBodyThatIsNotBase64ThoughItSaysSoIsMalformed(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, text := range []string{
		`{"payload":"x"}`, "eyJw=", "e", "$$$$",
		base64.URLEncoding.EncodeToString([]byte("\xff\xfe\xfd")),
	} {
		a := f.do(t, "POST", "/queues/emails/messages", text,
			func(e *events.APIGatewayV2HTTPRequest) { e.IsBase64Encoded = true })
		a.refused(t, 400, "malformed-body")
	}
	f.unchanged(t, map[string]any{})
}

func TestBodyOfMoreThanOneMebibyteIsRefused(t *testing.T) {
	t.Parallel()
	const limit = 1 << 20
	f := newFixture(t)
	for _, to := range targets(t, f) {
		before := f.stored(t)
		long := to.body + strings.Repeat(" ", limit+1-len(to.body))
		f.do(t, to.method, to.path, long).refused(t, 413, "payload-too-large")
		f.unchanged(t, before)
		if to.verb == "enqueue" {
			f.do(t, to.method, to.path, long, inBase64).refused(t, 413, "payload-too-large")
			f.do(t, to.method, to.path, long[:limit]).refusedNot(t)
			f.do(t, to.method, to.path, long[:limit], inBase64).refusedNot(t)
		}
	}
}

func TestUnknownNameIsRefusedByEveryRoute(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, to := range targets(t, f) {
		step(t, to.verb, func(t *testing.T) {
			before := f.stored(t)
			with := func(members string) string {
				if to.body == "{}" {
					return "{" + members + "}"
				}
				return to.body[:len(to.body)-1] + "," + members + "}"
			}
			f.do(t, to.method, to.path, with(`"colour":"red"`)).
				refused(t, 422, "validation-failed", "colour unknown colour is not known.")
			f.do(t, to.method, to.path, with(`"PAYLOAD":"x","Receipt":"y","":1,"a.b":null`)).
				refused(t, 422, "validation-failed", "PAYLOAD unknown PAYLOAD is not known.",
					"Receipt unknown Receipt is not known.", " unknown  is not known.", "a.b unknown a.b is not known.")
			f.do(t, to.method, to.path, with(`"é\u0000":[{"x":[1,2,{}]}]`)).
				refused(t, 422, "validation-failed", "é\x00 unknown é\x00 is not known.")
			f.unchanged(t, before)
		})
	}
}

// TestManyFaultsFitIntoOneAnswer: a list of every fault must not be longer than
// an answer may be.
func TestManyFaultsFitIntoOneAnswer(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var names strings.Builder
	for i := range 75_000 {
		names.WriteString(`,"` + strconv.FormatInt(int64(46_656+i), 36) + `":1`)
	}
	for _, tt := range []struct{ name, path, body string }{
		{"names by the ten thousand", "/queues/emails/messages", `{"payload":"x"` + names.String() + `}`},
		{"a name of half a mebibyte", "/queues/emails/messages", `{"payload":"x","` + strings.Repeat("n", 1<<19) + `":1}`},
		{
			"a schedule of 60,001 entries", "/queues/emails",
			`{"backoff":{"schedule_seconds":[0` + strings.Repeat(",0", 60_000) + `]}}`,
		},
	} {
		step(t, tt.name, func(t *testing.T) {
			method := "POST"
			if tt.path == "/queues/emails" {
				method = "PUT"
			}
			a := f.do(t, method, tt.path, tt.body) // how long the answer may be is checked for every answer
			var doc document
			a.into(t, 422, &doc)
			if len(doc.Errors) == 0 {
				t.Error("the answer lists no fault")
			}
			f.unchanged(t, map[string]any{})
		})
	}
}
