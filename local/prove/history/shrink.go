package history

import (
	"cmp"
	"fmt"
	"io"
	"slices"

	"github.com/anishathalye/porcupine"

	"github.com/redrivehq/redrive/shared/message"
)

// Of returns the part of the history that is about one message.
func (h *History) Of(id string) *History {
	part := *h
	part.Operations = slices.DeleteFunc(slices.Clone(h.Operations), func(o Operation) bool {
		// A claim without an answer may have been of it.
		return o.ID != id && (o.ID != "" || o.Verb != message.VerbClaim || o.known())
	})
	return &part
}

// Shortest returns the shortest part of the history of one message that still
// breaks the rules: it ends as early as it can, and holds no call that cannot have
// had an effect, if it breaks them without. What was under way at its end is of
// unknown outcome.
func (h *History) Shortest() *History {
	short := h
	byEnd := func(a, b Operation) int { return cmp.Compare(a.End, b.End) }
	for _, o := range slices.SortedFunc(slices.Values(h.Operations), byEnd) {
		if !o.known() {
			break
		}
		if part := h.until(o); part.breaks() {
			short = part
			break
		}
	}
	for i := len(short.Operations) - 1; i >= 0; i-- {
		if o := &short.Operations[i]; o.Verb != Get && (o.acknowledged() || !o.known() || h.Lossy) {
			continue // to leave out what may have had an effect could itself break the rules
		}
		less := *short
		less.Operations = slices.Delete(slices.Clone(short.Operations), i, i+1)
		if less.breaks() {
			short = &less
		}
	}
	return short
}

// until cuts the history at the end of the call.
func (h *History) until(end Operation) *History {
	part := *h
	part.Operations = nil
	for _, o := range h.Operations {
		if o.Start > end.End {
			continue
		}
		if o.End > end.End {
			o.End, o.Status, o.Found, o.Shown = Never, 0, "", nil
			if o.Verb == message.VerbClaim {
				o.ID, o.Receipt = "", ""
			}
		}
		part.Operations = append(part.Operations, o)
	}
	return &part
}

func (h *History) breaks() bool { return len(h.Check().Violations) > 0 }

// Draw writes a page that shows the calls of the history, which is of one message,
// and how far the rules explain them.
func (h *History) Draw(w io.Writer) error {
	m := (&model{History: h, ghosts: true}).porcupine()
	var ops []*Operation
	for i := range h.Operations {
		if o := &h.Operations[i]; o.ID != "" {
			ops = append(ops, o)
		}
	}
	_, info := porcupine.CheckOperationsVerbose(m, h.porcupine(ops), patience)
	if err := porcupine.Visualize(m, info, w); err != nil {
		return fmt.Errorf("draw the history: %w", err)
	}
	return nil
}
