package message

import (
	"strings"
	"time"
	"unicode/utf8"
)

// Limits of the contract, section 3. A limit in bytes counts UTF-8.
const (
	MaxPayloadBytes = 262_144
	// MaxPayloadJSONBytes bounds the payload as JSON text, so that ten claimed
	// messages fit into one answer.
	MaxPayloadJSONBytes = 440_000
	MaxErrorBytes       = 2_048
	// ShortErrorBytes is how much of an error is shown in lists and claims.
	ShortErrorBytes = 200
	// MaxReceiptLength is in characters.
	MaxReceiptLength = 200
	MaxListLimit     = 250
	MaxClaim         = 10
	MaxRetries       = 10
	MaxStalls        = 100
	MaxShards        = 64
	MaxSchedule      = 20 // entries
	MaxDelay         = 31_536_000 * time.Second
	MaxRetryAfter    = 604_800 * time.Second
	MaxTimeout       = 43_200 * time.Second
	// MaxHold is how long one claim can be extended, from the claim on.
	MaxHold = 12 * time.Hour
	// SweepGrace is how long after its end a lease is left alone, for the
	// difference between two clocks.
	SweepGrace = 2 * time.Second
)

// CutError shortens a text to at most limit bytes, at a character, and
// replaces what is not UTF-8. Nothing else is changed.
func CutError(text string, limit int) string {
	text = strings.ToValidUTF8(text, string(utf8.RuneError))
	if len(text) <= limit {
		return text
	}
	for !utf8.RuneStart(text[limit]) {
		limit--
	}
	return text[:limit]
}

// jsonBytes returns the length of s as a JSON string, quotes included, as
// Redrive writes it: control characters are escaped, nothing else that need not
// be.
func jsonBytes(s string) int {
	n := len(s) + len(`""`)
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\' || c == '\b' || c == '\f' || c == '\n' || c == '\r' || c == '\t':
			n += len(`\n`) - 1
		case c < ' ':
			n += len(`\u0000`) - 1
		}
	}
	return n
}

func payloadFits(s string) bool {
	return len(s) <= MaxPayloadBytes && jsonBytes(s) <= MaxPayloadJSONBytes
}
