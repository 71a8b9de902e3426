package sqlite

import (
	"errors"
	"fmt"

	sqlite3 "github.com/ncruces/go-sqlite3"

	"github.com/redrivehq/redrive/shared/message"
)

// engineError is what SQLite itself refused or could not do. The transaction it
// happened in is undone.
type engineError struct {
	statement string
	err       error
}

func (e *engineError) Error() string {
	hint := e.advice()
	if hint != "" {
		hint = " (" + hint + ")"
	}
	return fmt.Sprintf("sqlite: %s: %v%s", e.statement, e.err, hint)
}

// Unwrap makes the error ErrUnavailable where the same call may succeed once
// the disk is well again. The rest are faults of this package.
func (e *engineError) Unwrap() []error {
	if e.advice() == "" {
		return []error{e.err}
	}
	return []error{e.err, message.ErrUnavailable}
}

// advice says what a person can do about it; empty for a fault of ours.
func (e *engineError) advice() string {
	if errors.Is(e.err, sqlite3.IOERR_DATA) { // a checksum
		return damaged
	}
	for _, a := range []struct {
		code   sqlite3.ErrorCode
		advice string
	}{
		{sqlite3.FULL, "the disk is full: make room; nothing that was acknowledged is lost"},
		{sqlite3.IOERR, "the disk cannot be read or written, or is full: make room, or check it and its mount;" +
			" nothing that was acknowledged is lost"},
		{sqlite3.READONLY, "the file or its folder is read-only: make both writable"},
		{sqlite3.CANTOPEN, "the file cannot be opened: check that it and its folder are there and writable"},
		{sqlite3.PERM, "access to the file is denied: make it and its folder writable"},
		{sqlite3.CORRUPT, damaged},
		{sqlite3.NOTADB, damaged},
		{sqlite3.BUSY, "another program holds the file: end it"},
		{sqlite3.LOCKED, "another program holds the file: end it"},
		{sqlite3.NOMEM, "there is not enough memory"},
		{sqlite3.INTERRUPT, "it was interrupted"},
	} {
		if errors.Is(e.err, a.code) {
			return a.advice
		}
	}
	return ""
}

const damaged = "the file is damaged, or no SQLite file: stop, keep a copy of it, then restore a backup" +
	" or save what can be saved with the .recover command of the sqlite3 shell"

var errClosed = fmt.Errorf("sqlite: the store is closed: %w", message.ErrUnavailable)

// unavailable is for a caller whose time ran out before its turn came.
func unavailable(err error) error {
	return fmt.Errorf("sqlite: waiting for a turn: %w: %w", err, message.ErrUnavailable)
}

// explain turns an error of opening the file into a sentence for the person who
// chose it.
func explain(err error) error {
	if engine, ok := errors.AsType[*engineError](err); ok && engine.advice() != "" {
		return errors.New(engine.advice())
	}
	return err
}
