package api_test

import (
	"encoding/base64"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// badLimits are no whole numbers from 1 to 250 in plain digits.
var badLimits = []string{
	"-1", "0", "abc", "", "1e3", "5.0", " 5", "5 ", "+3", "0x10", "99999999999999999999", "251", "1001", "1_0", "00", "٣",
	"1,2", "NaN",
}

func TestListRefusesParameters(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.pending(t)
	before := f.stored(t)
	type row struct{ name, query, names string } // names must stand in the detail
	rows := []row{
		{"an unknown one", "?colour=red", `"colour"`},
		{"an unknown one without a value", "?colour", `"colour"`},
		{"two unknown ones", "?b=1&a=2", `Unknown query parameters: "a", "b".`},
		{"one in capitals", "?Limit=5", `"Limit"`},
		{"one that only another list knows", "?prefix=a", `"prefix"`},
		{"one twice", "?limit=5&limit=6", `given more than once: "limit"`},
		{"one twice with the same value", "?status=dead&status=dead", `given more than once: "status"`},
		{"one twice, once with escapes", "?limit=5&%6cimit=5", `given more than once: "limit"`},
		{
			"an unknown one and one twice", "?x=1&order=asc&order=asc",
			`Unknown query parameters: "x". Query parameters given more than once: "order".`,
		},
		{"an empty name", "?=1", `Unknown query parameters: "".`},
		{"a name that is not UTF-8", "?%ff=1", `Unknown query parameters: "\xff".`},
		{"an escape that is none", "?status=%zz", "not well-formed"},
		{"an escape that is cut short", "?status=dead%2", "not well-formed"},
		{"a semicolon between them", "?status=dead;limit=5", "not well-formed"},
		{"an unknown status", "?status=ready", "status must be one of pending, processing, dead, succeeded."},
		{"an empty status", "?status=", "status must be one of"},
		{"a status in capitals", "?status=DEAD", "status must be one of"},
		{"two statuses", "?status=dead,pending", "status must be one of"},
		{"an unknown order", "?order=up", "order must be one of asc, desc."},
		{"an empty order", "?order=", "order must be one of"},
		{"an order in capitals", "?order=ASC", "order must be one of"},
		{"a payload of another word", "?payload=yes", "payload must be one of"},
		{"a payload of 1", "?payload=1", "payload must be one of"},
		{"an empty payload", "?payload=", "payload must be one of"},
		{"a payload in capitals", "?payload=True", "payload must be one of"},
		{"an empty cursor", "?cursor=", "cursor"},
	}
	for _, limit := range badLimits {
		rows = append(rows, row{"limit " + limit, query("limit", limit), "limit must be a whole number between 1 and 250."})
	}
	for _, tt := range rows {
		step(t, tt.name, func(t *testing.T) {
			doc := f.do(t, "GET", emailsMessages+tt.query, "").refused(t, 400, "bad-request")
			if !strings.Contains(doc.Detail, tt.names) {
				t.Errorf("detail = %q, want %q in it", doc.Detail, tt.names)
			}
		})
	}
	f.unchanged(t, before)
}

func TestPrefixIsNoLongerThanAName(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	doc := f.do(t, "GET", "/queues?prefix="+strings.Repeat("a", 129), "").refused(t, 400, "bad-request")
	if !strings.Contains(doc.Detail, "128 bytes") {
		t.Errorf("detail = %q, want it to name the limit", doc.Detail)
	}
}

func TestRouteWithoutParametersRefusesAny(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	all := append(targets(t, f), target{"get", "GET", f.pending(t).path(), "", true}, target{
		"get queue", "GET",
		"/queues/emails", "", true,
	})
	before := f.stored(t)
	for _, to := range all {
		step(t, to.verb, func(t *testing.T) {
			for _, query := range []string{"?x=1", "?limit=5", "?queue=a&queue=b"} {
				f.do(t, to.method, to.path+query, to.body).refused(t, 400, "bad-request")
			}
			f.unchanged(t, before)
		})
	}
}

func TestListOfAnUnknownQueueIsEmpty(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, query := range []string{"", "?status=dead", "?order=desc&payload=true&limit=250"} {
		if got := f.list(t, emailsMessages+query); len(got) > 0 {
			t.Errorf("list%s = %v, want none", query, got)
		}
	}
	f.unchanged(t, map[string]any{})
}

// roundOf makes a queue with a message or more in every state, and returns their
// ids in the order of the list.
func roundOf(t *testing.T, f *fixture) (order []string) {
	t.Helper()
	byStatus := make(map[string][]string)
	for i := range 3 {
		f.clock.at(time.Duration(i) * time.Second)
		succeeded, dead, processing := f.succeeded(t), f.dead(t), f.processing(t)
		byStatus["succeeded"] = append(byStatus["succeeded"], succeeded.ID)
		byStatus["dead"] = append(byStatus["dead"], dead.ID)
		byStatus["processing"] = append(byStatus["processing"], processing.ID)
	}
	f.clock.at(4 * time.Second)
	late := f.do(t, "POST", emailsMessages, `{"payload":"x","delay_seconds":2}`).message(t, 201)
	soon := f.do(t, "POST", emailsMessages, `{"payload":"x","delay_seconds":1}`).message(t, 201)
	now, alsoNow := f.pending(t), f.pending(t)
	byStatus["pending"] = []string{now.ID, alsoNow.ID, soon.ID, late.ID}
	for _, status := range []string{"pending", "processing", "dead", "succeeded"} {
		order = append(order, byStatus[status]...)
	}
	return order
}

// walk follows the cursors of a list, and returns the ids of all pages.
func (f *fixture) walk(t *testing.T, path string, params ...string) (all []string, pages int) {
	t.Helper()
	for ask := path + query(params...); ; pages++ {
		page := f.do(t, "GET", ask, "").page(t)
		all = append(all, ids(page.Messages)...)
		if page.NextCursor == nil {
			return all, pages + 1
		}
		if len(page.Messages) == 0 || pages > 300 {
			t.Fatalf("GET %s: page %d is empty, or there is no end", ask, pages)
		}
		if len(*page.NextCursor) > 1_000 || !regexp.MustCompile(`^[A-Za-z0-9_-]+$`).MatchString(*page.NextCursor) {
			t.Errorf("cursor %q is too long, or not safe in a URL", *page.NextCursor)
		}
		ask = path + query(append(slices.Clone(params), "cursor", *page.NextCursor)...)
	}
}

func TestListWalksTheStatesOneAfterTheOther(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	order := roundOf(t, f)
	backward := slices.Clone(order)
	slices.Reverse(backward)
	for limit := 1; limit <= len(order)+1; limit++ {
		text := strconv.Itoa(limit)
		got, pages := f.walk(t, emailsMessages, "limit", text)
		if diff := cmp.Diff(order, got); diff != "" {
			t.Errorf("limit %d (-want +got):\n%s", limit, diff)
		}
		if want := (len(order) + limit - 1) / limit; pages != want {
			t.Errorf("limit %d: %d pages, want %d", limit, pages, want)
		}
		got, _ = f.walk(t, emailsMessages, "limit", text, "order", "desc", "payload", "true")
		if diff := cmp.Diff(backward, got); diff != "" {
			t.Errorf("limit %d backward (-want +got):\n%s", limit, diff)
		}
		for status, want := range map[string][]string{
			"pending": order[:4], "processing": order[4:7], "dead": order[7:10], "succeeded": order[10:],
		} {
			got, _ = f.walk(t, emailsMessages, "limit", text, "status", status)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("limit %d of %s (-want +got):\n%s", limit, status, diff)
			}
			got, _ = f.walk(t, emailsMessages, "limit", text, "status", status, "order", "desc")
			if slices.Reverse(got); !slices.Equal(want, got) {
				t.Errorf("limit %d of %s backward, turned round: %v, want %v", limit, status, got, want)
			}
		}
	}
}

func TestListShowsPayloadsOnRequestOnly(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.enqueue(t, "p")
	for query, want := range map[string]*string{"": nil, "?payload=false": nil, "?payload=true": new("p")} {
		if diff := cmp.Diff(want, f.list(t, emailsMessages+query)[0].Payload); diff != "" {
			t.Errorf("payload of list%s (-want +got):\n%s", query, diff)
		}
	}
}

func TestListLimitIsFiftyUnlessGiven(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for range 51 {
		f.enqueue(t, "")
	}
	for query, want := range map[string]int{"": 50, "?limit=51": 51, "?limit=250": 51, "?limit=007": 7} {
		page := f.do(t, "GET", emailsMessages+query, "").page(t)
		if len(page.Messages) != want || (page.NextCursor == nil) != (want == 51) {
			t.Errorf("list%s has %d messages, cursor %v; want %d", query, len(page.Messages), page.NextCursor, want)
		}
	}
}

// firstCursor returns the cursor of the first page of a list.
func (f *fixture) firstCursor(t *testing.T, target string) string {
	t.Helper()
	var page struct {
		NextCursor *string `json:"next_cursor"`
		Messages   any     `json:"messages"`
		Queues     any     `json:"queues"`
	}
	a := f.do(t, "GET", target, "")
	if a.into(t, 200, &page); page.NextCursor == nil {
		t.Fatalf("GET %s has no cursor", target)
	}
	return *page.NextCursor
}

func TestCursorIsBoundToItsList(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	order := roundOf(t, f)
	for range 3 {
		f.enqueueOn(t, "others", "x")
	}
	cursor := f.firstCursor(t, emailsMessages+"?limit=2")
	dead := f.firstCursor(t, emailsMessages+"?limit=1&status=dead")
	queues := f.firstCursor(t, "/queues?limit=1")

	step(t, "it survives another limit and payload", func(t *testing.T) {
		for _, params := range []string{"&limit=3", "&limit=3&payload=true", "&limit=3&payload=false&order=asc"} {
			page := f.do(t, "GET", emailsMessages+"?cursor="+cursor+params, "").page(t)
			if diff := cmp.Diff(order[2:5], ids(page.Messages)); diff != "" {
				t.Errorf("page after cursor with %s (-want +got):\n%s", params, diff)
			}
		}
	})
	last := cursor[:len(cursor)-1]
	raw, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil {
		t.Fatalf("cursor %q: %v", cursor, err)
	}
	turned := func(at int) string {
		other := slices.Clone(raw)
		other[at] ^= 1
		return base64.RawURLEncoding.EncodeToString(other)
	}
	for _, tt := range []struct{ name, target string }{
		{"S031 of another queue", "/queues/others/messages?cursor=" + cursor},
		{"of an unknown queue", "/queues/unknown/messages?cursor=" + cursor},
		{"of another status", emailsMessages + "?status=pending&cursor=" + cursor},
		{"of one status used for all", emailsMessages + "?cursor=" + dead},
		{"of one status used for another", emailsMessages + "?status=succeeded&cursor=" + dead},
		{"of the other order", emailsMessages + "?order=desc&cursor=" + cursor},
		{"of the list of queues", emailsMessages + "?cursor=" + queues},
		{"of messages used for queues", "/queues?cursor=" + cursor},
		{"of queues used for another prefix", "/queues?prefix=e&cursor=" + queues},
		{"S030 that is a number", emailsMessages + "?cursor=1"},
		{"S030 that is three escapes of nothing", emailsMessages + "?cursor=%25%25%25"},
		{"S030 that is an empty JSON object", emailsMessages + "?cursor=e30%3D"},
		{"S030 that is a JSON object", emailsMessages + "?cursor=eyJwayI6IngifQ%3D%3D"},
		{"that is a JSON object without padding", emailsMessages + "?cursor=eyJwayI6IngifQ"},
		{"S030 that is 10,000 characters long", emailsMessages + "?cursor=" + strings.Repeat("A", 10_000)},
		{"S030 without its last character", emailsMessages + "?cursor=" + last},
		{"with a character too many", emailsMessages + "?cursor=" + cursor + "A"},
		{"with padding", emailsMessages + "?cursor=" + cursor + "%3D"},
		{"with a line feed", emailsMessages + "?cursor=" + cursor + "%0A"},
		{"with a blank before it", emailsMessages + "?cursor=+" + cursor},
		{"whose version is another", emailsMessages + "?cursor=" + turned(0)},
		{"whose checksum is another", emailsMessages + "?cursor=" + turned(1)},
		{"whose position is another", emailsMessages + "?cursor=" + turned(len(raw)-1)},
		{"that is a message id", emailsMessages + "?cursor=" + order[0]},
	} {
		step(t, "refused: one "+tt.name, func(t *testing.T) {
			a := f.do(t, "GET", tt.target, "")
			a.refused(t, 400, "bad-request")
			if strings.Contains(a.body, "msg_") {
				t.Errorf("the answer shows a message: %s", a.body)
			}
		})
	}
	step(t, "it shows no names of keys", func(t *testing.T) {
		for _, text := range []string{cursor, dead, queues} {
			raw, err := base64.RawURLEncoding.DecodeString(text)
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range []string{"pk", "sk", "queue", "status", "due", "pending", "{", "others", "emails"} {
				if strings.Contains(string(raw), name) && text != queues { // that of queues holds the last name shown
					t.Errorf("cursor %q shows %q", raw, name)
				}
			}
		}
	})
}

// TestValueOfAQueryIsDecodedOnce looks through the prefix, the one parameter that
// may hold any character.
func TestValueOfAQueryIsDecodedOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, name := range []string{"a+b=c", "a b", "naïve", "a&b"} {
		f.enqueueOn(t, name, "x")
	}
	for raw, want := range map[string][]string{
		"a%2Bb%3D":   {"a+b=c"},
		"a+b":        {"a b"},
		"a%20b":      {"a b"},
		"a%252Bb":    {}, // a%2Bb
		"na%C3%AFve": {"naïve"},
		"naïve":      {"naïve"},
		"a%26":       {"a&b"},
		"%00":        {},
		"%ff":        {},
		"":           {"a b", "a&b", "a+b=c", "naïve"},

		strings.Repeat("a", 128): {},
	} {
		var page queuePage
		f.do(t, "GET", "/queues?prefix="+raw, "").into(t, 200, &page)
		got := []string{}
		for _, q := range page.Queues {
			got = append(got, q.Queue)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("queues with prefix=%s (-want +got):\n%s", raw, diff)
		}
	}
	// A cursor survives a trip through both spellings.
	cursor := f.firstCursor(t, "/queues?limit=1")
	for _, spelling := range []string{cursor, url.QueryEscape(cursor), escapeAll(cursor)} {
		var page queuePage
		f.do(t, "GET", "/queues?limit=1&cursor="+spelling, "").into(t, 200, &page)
		if len(page.Queues) != 1 || page.Queues[0].Queue != "a&b" {
			t.Errorf("page after %s = %v, want a&b", spelling, page.Queues)
		}
	}
}

func escapeAll(text string) string {
	var b strings.Builder
	for _, c := range []byte(text) {
		fmt.Fprintf(&b, "%%%02X", c)
	}
	return b.String()
}
