package api

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"slices"
	"strings"
	"time"

	"github.com/redrivehq/redrive/shared/message"
)

// A cursor is a version, a checksum and a position, in base64url. The checksum
// covers what the list was asked for, so that a cursor is good for that list
// only. It is no secret: a position forged with effort leads to no other queue,
// for the queue is that of the path.
const (
	cursorVersion  = 1
	cursorSum      = 12 // bytes
	maxCursor      = 1_000
	cursorOverhead = 1 + cursorSum
)

func seal(scope, position string) string {
	sum := sha256.Sum256([]byte(scope + "\x00" + position))
	raw := append([]byte{cursorVersion}, sum[:cursorSum]...)
	return base64.RawURLEncoding.EncodeToString(append(raw, position...))
}

// unseal returns the position of a cursor made for the same scope.
func unseal(scope, cursor string) (position string, err error) {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(cursor)
	if err == nil && len(cursor) <= maxCursor && len(raw) > cursorOverhead {
		position = string(raw[cursorOverhead:])
		if seal(scope, position) == cursor {
			return position, nil
		}
	}
	return "", refuse(errBadRequest, "The cursor is not one of this list: "+
		"use next_cursor as it was given, with the same queue, filter and order.")
}

func sealPlace(scope string, p message.Position) string {
	status := slices.Index(message.Statuses(), p.Status)
	raw := binary.BigEndian.AppendUint64([]byte{byte(status)}, uint64(p.Due.UnixMilli())) //nolint:gosec // both are small
	return seal(scope, string(raw)+p.ID)
}

func unsealPlace(scope, cursor string) (*message.Position, error) {
	text, err := unseal(scope, cursor)
	if err != nil {
		return nil, err
	}
	const fixed = 1 + 8
	statuses := message.Statuses()
	if len(text) < fixed || int(text[0]) >= len(statuses) || !message.IsID(text[fixed:]) {
		return nil, refuse(errBadRequest, "The cursor is damaged.")
	}
	due := binary.BigEndian.Uint64([]byte(text[1:fixed]))
	const lastMillis = 1e13 // what stores keep times in has thirteen digits
	if due >= lastMillis {
		return nil, refuse(errBadRequest, "The cursor is damaged.")
	}
	return &message.Position{
		Status: statuses[text[0]], Due: time.UnixMilli(int64(due)).UTC(), ID: text[fixed:],
	}, nil
}

// scopeOf names what a cursor is bound to.
func scopeOf(parts ...string) string { return strings.Join(parts, "\x00") }
