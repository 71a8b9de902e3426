package dynamo

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/redrivehq/redrive/shared/message"
)

// item is what DynamoDB stores.
type item = map[string]types.AttributeValue

// version of the layout, in every message and queue. Attributes may be added
// without a new one: what code does not know it leaves as it is. A change that
// older code would misread takes a new one, and a release before it that can read
// both.
const version = 1

// Attributes of a message. Status, queue, id and all that is the due time stand
// in the keys alone. Attributes that are not there are zero.
const (
	attrVersion      = "v"
	attrReceipt      = "receipt"
	attrLastVerb     = "last_verb"
	attrRetryCount   = "retry_count"
	attrMaxRetries   = "max_retries"
	attrStallCount   = "stall_count"
	attrMaxStalls    = "max_stalls"
	attrClaimCount   = "claim_count"
	attrReplayCount  = "replay_count"
	attrClaimedAt    = "claimed_at" // times are epoch milliseconds
	attrCreatedAt    = "created_at"
	attrUpdatedAt    = "updated_at"
	attrDeadReason   = "dead_reason"
	attrFingerprint  = "fingerprint"
	attrNonce        = "nonce"       // of the enqueue: its first receipt
	attrPayload      = "payload"     // a string as it is, binary as zstd
	attrPayloadKey   = "payload_key" // the sort key of the payload's own item
	attrPayloadBytes = "payload_bytes"
	// Of the last attempt that failed, so that a crash before it is put into the
	// history loses nothing.
	attrLastNumber    = "last_number"
	attrLastClaimedAt = "last_claimed_at"
	attrLastEndedAt   = "last_ended_at"
	attrLastOutcome   = "last_outcome"
	attrLastError     = "last_error" // the first message.ShortErrorBytes
)

// Attributes of an attempt and of a payload.
const (
	attrNumber  = "number"
	attrEndedAt = "ended_at"
	attrOutcome = "outcome"
	attrError   = "error" // a string as it is, binary as zstd
	attrLife    = "life"  // the replay_count for which the payload is kept
)

// row is a message as stored.
type row struct {
	message.Message
	shard      int
	nonce      string               // of the enqueue
	payload    types.AttributeValue // nil where it stands apart
	payloadKey string               // empty where it does not
	last       *message.Attempt     // that failed, its error shortened; nil if there is none
}

// after returns the row as the change leaves it.
func (r row) after(c message.Change, shard int) row {
	switch {
	case c.Attempt != nil:
		r.last = c.Attempt
	case c.Message.LastError != r.LastError: // a replay's none, or one that no attempt had
		r.last = nil
	}
	r.Message, r.shard = c.Message, shard
	return r
}

func encode(r row) item {
	m := item{
		attrPK: text(messagePK(r.Queue, r.ID)), attrSK: text(skMessage),
		attrQueueStatus: text(partition(r.Status, r.shard, r.Queue)), attrDue: text(sortKey(r.Due, r.ID)),
		attrVersion: number(version), attrReceipt: text(r.Receipt),
		attrMaxRetries: number(r.MaxRetries), attrMaxStalls: number(r.MaxStalls),
		attrCreatedAt: millis(r.CreatedAt), attrUpdatedAt: millis(r.UpdatedAt),
		attrPayloadBytes: number(r.PayloadBytes),
	}
	for name, n := range map[string]int{
		attrRetryCount: r.RetryCount, attrStallCount: r.StallCount,
		attrClaimCount: r.ClaimCount, attrReplayCount: r.ReplayCount,
	} {
		if n != 0 {
			m[name] = number(n)
		}
	}
	for name, value := range map[string]string{
		attrLastVerb: string(r.LastVerb), attrDeadReason: string(r.DeadReason),
		attrFingerprint: r.Fingerprint, attrPayloadKey: r.payloadKey, attrNonce: r.nonce,
	} {
		if value != "" {
			m[name] = text(value)
		}
	}
	if !r.ClaimedAt.IsZero() {
		m[attrClaimedAt] = millis(r.ClaimedAt)
	}
	if !r.ExpiresAt.IsZero() {
		m[attrExpiresAt] = seconds(r.ExpiresAt)
	}
	if r.payload != nil {
		m[attrPayload] = r.payload
	}
	if r.LastError != nil {
		m[attrLastError] = text(message.CutError(*r.LastError, message.ShortErrorBytes))
	}
	if a := r.last; a != nil {
		m[attrLastNumber], m[attrLastOutcome] = number(a.Number), text(string(a.Outcome))
		m[attrLastClaimedAt], m[attrLastEndedAt] = millis(a.ClaimedAt), millis(a.EndedAt)
	}
	return m
}

// decode reads a message without its payload.
func decode(m item) row {
	r := row{payload: m[attrPayload], payloadKey: str(m, attrPayloadKey), nonce: str(m, attrNonce)}
	r.Queue, r.ID = splitPK(str(m, attrPK))
	r.Status, r.shard = splitPartition(str(m, attrQueueStatus))
	r.Due, _ = splitSortKey(str(m, attrDue))
	r.PayloadBytes = integer(m, attrPayloadBytes)
	r.RetryCount, r.MaxRetries = integer(m, attrRetryCount), integer(m, attrMaxRetries)
	r.StallCount, r.MaxStalls = integer(m, attrStallCount), integer(m, attrMaxStalls)
	r.ClaimCount, r.ReplayCount = integer(m, attrClaimCount), integer(m, attrReplayCount)
	r.DeadReason = message.DeadReason(str(m, attrDeadReason))
	r.Receipt, r.LastVerb = str(m, attrReceipt), message.Verb(str(m, attrLastVerb))
	r.ClaimedAt, r.CreatedAt, r.UpdatedAt = instant(m, attrClaimedAt), instant(m, attrCreatedAt), instant(m, attrUpdatedAt)
	r.ExpiresAt = epochSecond(m, attrExpiresAt)
	r.Fingerprint = str(m, attrFingerprint)
	if short, ok := m[attrLastError].(*types.AttributeValueMemberS); ok {
		r.LastError = &short.Value
	}
	if _, ok := m[attrLastNumber]; ok && r.LastError != nil {
		r.last = &message.Attempt{
			Number: integer(m, attrLastNumber), Outcome: message.Outcome(str(m, attrLastOutcome)), Error: *r.LastError,
			ClaimedAt: instant(m, attrLastClaimedAt), EndedAt: instant(m, attrLastEndedAt),
		}
	}
	return r
}

// gravestone is what a delete leaves for a while in the place of the message: the
// nonce by which a late copy of its enqueue is known.
func gravestone(r row, until time.Time) item {
	return item{
		attrPK: text(messagePK(r.Queue, r.ID)), attrSK: text(skMessage), attrVersion: number(version),
		attrNonce: text(r.nonce), attrExpiresAt: seconds(until),
	}
}

// gone reports whether there is no message: no item, or a gravestone.
func gone(m item) bool { return str(m, attrQueueStatus) == "" }

func encodeAttempt(r row, a message.Attempt) item {
	return item{
		attrPK: text(messagePK(r.Queue, r.ID)), attrSK: text(attemptSK(a.Number)),
		attrNumber: number(a.Number), attrOutcome: text(string(a.Outcome)), attrError: pack(a.Error),
		attrClaimedAt: millis(a.ClaimedAt), attrEndedAt: millis(a.EndedAt),
		attrExpiresAt: seconds(a.EndedAt.Add(message.HistoryAge)),
	}
}

func decodeAttempt(m item) (message.Attempt, error) {
	text, err := unpack(m[attrError])
	return message.Attempt{
		Number: integer(m, attrNumber), Outcome: message.Outcome(str(m, attrOutcome)), Error: text,
		ClaimedAt: instant(m, attrClaimedAt), EndedAt: instant(m, attrEndedAt),
	}, err
}

func text(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }

func number[N int | int64](n N) types.AttributeValue {
	return &types.AttributeValueMemberN{Value: strconv.FormatInt(int64(n), 10)}
}

func millis(t time.Time) types.AttributeValue { return number(t.UnixMilli()) }

// seconds rounds up: TTL knows whole seconds, and nothing goes too early.
func seconds(t time.Time) types.AttributeValue {
	return number(t.Add(time.Second - time.Nanosecond).Unix())
}

// str returns a string, empty if there is none.
func str(m item, name string) string {
	if s, ok := m[name].(*types.AttributeValueMemberS); ok {
		return s.Value
	}
	return ""
}

// whole returns a number, and whether there is one.
func whole(m item, name string) (int64, bool) {
	n, ok := m[name].(*types.AttributeValueMemberN)
	if !ok {
		return 0, false
	}
	value, err := strconv.ParseInt(n.Value, 10, 64) // never through a float
	return value, err == nil
}

func integer(m item, name string) int {
	n, _ := whole(m, name)
	return int(n)
}

// instant returns a time, zero if there is none.
func instant(m item, name string) time.Time {
	if n, ok := whole(m, name); ok {
		return time.UnixMilli(n).UTC()
	}
	return time.Time{}
}

func epochSecond(m item, name string) time.Time {
	if n, ok := whole(m, name); ok {
		return time.Unix(n, 0).UTC()
	}
	return time.Time{}
}

// itemSize returns what DynamoDB bills and limits, by its documentation ("Item
// sizes and formats"): names and values in bytes; a number takes one byte, one
// for a sign, and one for each two digits.
func itemSize(m item) int {
	size := 0
	for name, value := range m {
		size += len(name)
		switch v := value.(type) {
		case *types.AttributeValueMemberS:
			size += len(v.Value)
		case *types.AttributeValueMemberB:
			size += len(v.Value)
		case *types.AttributeValueMemberN:
			size += (len(v.Value)+1)/2 + 1
		default:
			size++
		}
	}
	return size
}

// expression builds the parameters of a request: every name and value goes
// through a placeholder, as many names are reserved words.
type expression struct {
	names  map[string]string
	values item
}

func newExpression() *expression {
	return &expression{names: make(map[string]string), values: make(item)}
}

// name returns the placeholder of an attribute.
func (e *expression) name(attr string) string {
	e.names["#"+attr] = attr
	return "#" + attr
}

// value returns a placeholder for a value.
func (e *expression) value(v types.AttributeValue) string {
	key := ":" + strconv.Itoa(len(e.values))
	e.values[key] = v
	return key
}

func (e *expression) equal(attr string, v types.AttributeValue) string {
	return e.name(attr) + " = " + e.value(v)
}

// absent and present are conditions on the item as a whole.
func (e *expression) absent() string { return "attribute_not_exists(" + e.name(attrPK) + ")" }

func (e *expression) present() string { return "attribute_exists(" + e.name(attrPK) + ")" }

// change returns the update that makes was to be as next, whatever else stands
// in the item.
func (e *expression) change(was, next item) string {
	set, remove := make(item), []string(nil)
	for attr, v := range next {
		if !same(was[attr], v) {
			set[attr] = v
		}
	}
	for attr := range was {
		if _, stays := next[attr]; !stays {
			remove = append(remove, attr)
		}
	}
	return e.update(set, remove...)
}

// update returns the update that sets some attributes and removes others.
func (e *expression) update(set item, remove ...string) string {
	var sets, removes []string
	for _, attr := range slices.Sorted(maps.Keys(set)) {
		sets = append(sets, e.equal(attr, set[attr]))
	}
	for _, attr := range slices.Sorted(slices.Values(remove)) {
		removes = append(removes, e.name(attr))
	}
	update := "SET " + strings.Join(sets, ", ") // every change sets something
	if len(removes) > 0 {
		update += " REMOVE " + strings.Join(removes, ", ")
	}
	return update
}

// same compares the values that a transition may change: text and numbers.
func same(a, b types.AttributeValue) bool {
	switch a := a.(type) {
	case *types.AttributeValueMemberS:
		b, ok := b.(*types.AttributeValueMemberS)
		return ok && a.Value == b.Value
	case *types.AttributeValueMemberN:
		b, ok := b.(*types.AttributeValueMemberN)
		return ok && a.Value == b.Value
	}
	return a == b
}
