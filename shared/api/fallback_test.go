package api_test

import (
	"strings"
	"testing"

	"github.com/aws/aws-lambda-go/events"
	"github.com/google/go-cmp/cmp"

	"github.com/redrivehq/redrive/shared/api"
)

const someID = "msg_06H2S2KGG1D5M0000000000008"

func TestOtherMethodIsRefusedWithThoseAllowed(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for path, allow := range map[string]string{
		"/queues":                                        "GET",
		"/queues/emails":                                 "GET, PUT, DELETE",
		"/queues/messages":                               "GET, PUT, DELETE",
		"/queues/emails/messages":                        "POST, GET",
		"/queues/emails/claim":                           "POST",
		"/queues/claim/claim":                            "POST",
		"/queues/emails/messages/" + someID:              "GET, DELETE",
		"/queues/emails/messages/nonsense":               "GET, DELETE",
		"/queues/emails/messages/claim":                  "GET, DELETE",
		"/queues/emails/messages/" + someID + "/succeed": "POST",
		"/queues/emails/messages/" + someID + "/fail":    "POST",
		"/queues/emails/messages/" + someID + "/extend":  "POST",
		"/queues/emails/messages/" + someID + "/release": "POST",
		"/queues/emails/messages/" + someID + "/replay":  "POST",
		"/queues/naïve 😀/messages":                       "POST, GET",
	} {
		for _, method := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "get", "QUERY"} {
			if contained := strings.Contains(", "+allow+",", ", "+method+","); contained {
				if _, _, ok := api.Match(method, path); !ok {
					t.Errorf("%s %s is allowed, and no route matches it", method, path)
				}
				continue
			}
			a := f.do(t, method, path, "")
			a.refused(t, 405, "method-not-allowed")
			if a.header["allow"] != allow {
				t.Errorf("%s %s: allow = %q, want %q", method, path, a.header["allow"], allow)
			}
			// Whatever the request brings along.
			a = f.do(t, method, path+"?x=1&x=2", "[", header("content-type", "text/plain"))
			a.refused(t, 405, "method-not-allowed")
		}
	}
	f.unchanged(t, map[string]any{})
}

func TestPathThatIsNoneIsNotFound(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, path := range []string{
		"", "/", "//", "queues", "/queue", "/Queues", "/queues/emails/message", "/queues/emails/Messages",
		"/queues/emails/claim/x",
		"/queues/emails/messages/", "/queues/emails/claim/", "/queues/emails/", "/queues/emails/messages/" + someID + "/",
		"/queues/emails/messages/" + someID + "/Succeed", "/queues/emails/messages/" + someID + "/succeed/",
		"/queues/emails/messages//succeed", "/queues/a/b/messages", "/queues/emails//messages", "//queues/emails",
		"/favicon.ico", "/health",
		"/prod/queues/emails/messages", "/queues/emails/secrets", "/queues/emails/causes", "/queues/emails/redrives",
		"/queues/emails/test",
		"/queues/emails/messages/" + someID + "/delete", "/%71ueues", "/queues/emails/messages/x/y/z", "\xff",
	} {
		for _, method := range []string{"GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"} {
			doc := f.do(t, method, path, "").refused(t, 404, "not-found")
			if want := "There is nothing at this path."; doc.Detail != want {
				t.Errorf("%s %s: detail = %q, want %q", method, path, doc.Detail, want)
			}
		}
	}
	f.unchanged(t, map[string]any{})
}

func TestPathWithABadQueueNameSaysWhichRuleItBreaks(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for path, rule := range map[string]string{
		"/queues//messages":           "must not be empty",
		"/queues//claim":              "must not be empty",
		"/queues/":                    "must not be empty",
		"/queues//messages/" + someID: "must not be empty",
		"/queues/a%2Fb/messages":      `must not contain any of / \ ? # %`,
		"/queues/../messages":         "must not be . or ..",
		"/queues/ a":                  "must not begin or end with a blank",
	} {
		e := newEvent("PATCH", path, "", "$default", nil, "")
		doc := f.send(t, api.Fallback, e).refused(t, 400, "bad-request")
		if want := "The queue name " + rule + "."; doc.Detail != want {
			t.Errorf("%s: detail = %q, want %q", path, doc.Detail, want)
		}
	}
	f.unchanged(t, map[string]any{})
}

func TestFunctionAnswersOnlyForItsOwnRoutes(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, tt := range []struct{ function, route string }{
		{"nonsense", "GET /queues"},
		{"", "GET /queues"},
		{"queues", "POST /queues/{queue}/messages"},
		{"queues", "$default"},
		{"queues", ""},
	} {
		a := f.send(t, tt.function, newEvent("GET", "/queues", "", tt.route, nil, ""))
		want := document{Type: "about:blank", Title: "Internal Server Error", Status: 500}
		var got document
		if a.into(t, 500, &got); !cmp.Equal(want, got) {
			t.Errorf("function %q for %q = %+v, want %+v", tt.function, tt.route, got, want)
		}
		if line := f.log.take(); !strings.Contains(line, "does not serve route") ||
			!strings.Contains(line, `"level":"ERROR"`) {
			t.Errorf("log = %s, want the reason", line)
		}
	}
	f.unchanged(t, map[string]any{})
}

func TestStageInFrontOfThePathIsTakenOffOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, tt := range []struct {
		stage, path string
		status      int
		allow       string
	}{
		{"prod", "/prod/queues/prod/messages", 405, "POST, GET"},
		{"queues", "/queues/queues/a/messages", 405, "POST, GET"},
		{"queues", "/queues/queues", 405, "GET"},
		{"prod", "/queues/prod/messages", 405, "POST, GET"}, // a domain of its own has no stage in the path
		{"prod", "/prod/prod/queues", 404, ""},
		{"prod", "/prod", 404, ""},
		{"prod", "/prod/", 404, ""},
		{"prod", "/production/queues", 404, ""},
		{"pro", "/prod/queues", 404, ""},
		{"$default", "/prod/queues/prod/messages", 404, ""},
		{"$default", "/$default/queues", 404, ""},
		{"", "//queues", 404, ""},
	} {
		a := f.send(t, api.Fallback, newEvent("PATCH", tt.path, "", "$default", nil, ""),
			func(e *events.APIGatewayV2HTTPRequest) {
				e.RequestContext.Stage = tt.stage
			})
		if a.status != tt.status || a.header["allow"] != tt.allow {
			t.Errorf("PATCH %s of stage %q = %d, allow %q; want %d, %q",
				tt.path, tt.stage, a.status, a.header["allow"], tt.status, tt.allow)
		}
	}
}

func TestEventOfAnotherVersionIsRefusedByEveryFunction(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, name := range eventNames(t) {
		for _, version := range []string{"1.0", "", "3.0", "2"} {
			e := readEvent(t, name)
			e.Version = version
			doc := f.send(t, function(name), e).refused(t, 400, "bad-request")
			if !strings.Contains(doc.Detail, `"`+version+`"`) {
				t.Errorf("%s: detail = %q, want the version %q in it", name, doc.Detail, version)
			}
		}
	}
	f.unchanged(t, map[string]any{})
}
