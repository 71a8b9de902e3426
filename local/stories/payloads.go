package stories

import (
	"fmt"
	"strings"
)

// payloads tells that a payload comes back byte for byte, at every step.
func payloads() []story {
	var stories []story
	for _, tt := range []struct{ name, payload string }{
		{"S015 numbers that no float holds", `{"id":8202522731445525542,"n":9007199254740993,"f":1.0,"e":1E400,"z":-0}`},
		{"S019 nothing at all", ""},
		{"NUL and every other control character", controls()},
		{"what HTML would escape", `<a&b>` + "\u2028\u2029"},
		{"emoji, accents, and the last code point", "naïve 😊 中文 👩‍👩‍👧 e\u0301 \U0010FFFF \uFFFD \uFEFF"},
		{"line ends of all kinds", "a\r\nb\nc\rd\n"},
		{"JSON within JSON", `{"a":"{\"b\":\"\\\\\"}"}`},
		{"the longest payload", strings.Repeat("x", 262_144)},
		{"the longest payload of wide characters", strings.Repeat("😀", 65_536)},
	} {
		text := escapeJSON(tt.payload)
		shown := fmt.Sprintf(`{"id":"$id","payload":"%s","payload_bytes":%d}`, text, len(tt.payload))
		stories = append(stories, story{
			name: "a payload comes back as it was: " + tt.name,
			steps: []step{
				put(`{"max_retries":1,"processing_timeout":3600}`),
				enqueue(`{"payload":"`+text+`"}`, shown),
				claim(shown[:len(shown)-1] + `,"receipt":"$first"}`),
				get(shown),
				answer("fail", `{"receipt":"$first","error":"`+shortText(tt.payload)+`"}`,
					`{"status":"dead","last_error":"`+shortText(tt.payload)+`"}`),
				get(shown),
				answer("replay", "", `{"status":"pending"}`),
				claim(shown[:len(shown)-1] + `,"receipt":"$second"}`),
				answer("succeed", `{"receipt":"$second"}`, `{"status":"succeeded"}`),
				get(shown),
			},
			stored: `[` + shown + `]`,
		})
	}
	const path = "POST /queues/$q/messages"
	return append(stories, story{
		name: "a payload one byte above the limit is refused, however many characters it has",
		steps: []step{
			refused(path, `{"payload":"`+strings.Repeat("x", 262_145)+`"}`, 413, "payload-too-large"),
			refused(path, `{"payload":"`+strings.Repeat("😀", 65_536)+`x"}`, 413, "payload-too-large"),
			refused(path, `{"payload":"`+strings.Repeat(`\u0000`, 73_334)+`"}`, 413, "payload-too-large"),
			enqueue(`{"payload":"`+strings.Repeat(`\u0000`, 73_333)+`"}`, `{"payload_bytes":73333}`),
		},
		stored: `[{"payload_bytes":73333}]`,
	})
}

// shortText is the payload as an error text of JSON, short enough to be kept
// whole.
func shortText(payload string) string {
	if len(payload) > 200 {
		payload = "too long"
	}
	return escapeJSON(payload)
}

func controls() string {
	var b strings.Builder
	for c := range rune(0x20) {
		b.WriteRune(c)
	}
	b.WriteString("\x7f\u0080\u009f")
	return b.String()
}
