package message

import (
	"context"
	"slices"
)

// List is what a page of messages is asked for by.
type List struct {
	Queue      string
	Status     Status    // empty for all, one after the other in the order of Statuses
	After      *Position // exclusive; nil for the beginning
	Descending bool      // turns the whole round
	Limit      int       // 1 to MaxListLimit
	Payload    bool
	// PayloadBytes ends the page once the payloads of one status reach this sum.
	PayloadBytes int
}

// List returns a page of messages, and whether others follow. An unknown queue
// is empty. Errors: ErrUnavailable.
func (s *Service) List(ctx context.Context, l List) (page []Message, more bool, err error) {
	query := ListQuery{
		Queue: l.Queue, Descending: l.Descending, After: l.After,
		Payload: l.Payload, PayloadBytes: l.PayloadBytes, Now: s.now(),
	}
	for _, status := range l.statuses() {
		// A full page asks on, for one message, only to learn whether there is one.
		query.Status, query.Limit = status, max(l.Limit-len(page), 1)
		query.Payload = l.Payload && len(page) < l.Limit
		messages, stopped, err := s.Store.List(ctx, query)
		switch {
		case err != nil:
			return nil, false, err
		case len(page) == l.Limit && len(messages) > 0:
			return page, true, nil
		}
		page = append(page, messages...)
		if stopped {
			return page, true, nil
		}
		query.After = nil
	}
	return page, false, nil
}

// statuses returns those that the list walks, beginning where After stands.
func (l List) statuses() []Status {
	if l.Status != "" {
		return []Status{l.Status}
	}
	all := Statuses()
	if l.Descending {
		slices.Reverse(all)
	}
	if l.After != nil {
		all = all[max(slices.Index(all, l.After.Status), 0):]
	}
	return all
}
