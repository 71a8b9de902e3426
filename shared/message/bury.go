package message

// Bury makes a message dead whose payload the store has lost: nobody can work on
// it, and a person must hear of it. It ends the hand-out that found out.
type Bury struct{ Answer }

// Verb implements Transition.
func (t Bury) Verb() Verb { return VerbBury }

// Allows implements Transition.
func (t Bury) Allows(m Message) error { return t.allows(m, VerbBury) }

// AppliedTo implements Transition.
func (t Bury) AppliedTo(m Message) bool { return t.repeats(m, VerbBury) }

// Apply implements Transition. The message stays until it is deleted, whatever
// the queue says.
func (t Bury) Apply(m Message) Message {
	m = m.settle(t.At, VerbBury)
	m.LastError = new("the payload is missing from the store")
	return m.bury(PayloadMissing, nil)
}

// Ended implements Transition. Nobody has worked on it: that is no attempt.
func (Bury) Ended(Message) *Attempt { return nil }
