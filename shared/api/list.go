package api

import (
	"context"
	"net/http"
	"slices"

	"github.com/redrivehq/redrive/shared/message"
)

// usualListLimit is the number of messages on a page if the client does not say.
const usualListLimit = 50

// list shows a page of messages.
func list(ctx context.Context, svc *message.Service, req *request) (response, error) {
	l, scope, err := req.readList()
	if err != nil {
		return response{}, err
	}
	messages, more, err := svc.List(ctx, l)
	if err != nil {
		return response{}, err
	}
	page := newPage("messages")
	for i, m := range messages {
		view := viewOf(m)
		if l.Payload {
			view = view.withPayload(m)
		}
		fits, err := page.add(view)
		if err != nil {
			return response{}, err
		}
		if !fits {
			messages, more = messages[:i], true
			break
		}
	}
	if more {
		return page.reply(sealPlace(scope, messages[len(messages)-1].Place()))
	}
	return page.reply("")
}

func (req *request) readList() (l message.List, scope string, err error) {
	l = message.List{Queue: req.queue, PayloadBytes: maxAnswer}
	if l.Limit, err = req.limit(usualListLimit, message.MaxListLimit); err != nil {
		return l, "", err
	}
	status, given := req.query["status"]
	if l.Status = message.Status(status); given && !slices.Contains(message.Statuses(), l.Status) {
		return l, "", refuse(errBadRequest, "status must be one of pending, processing, dead, succeeded.")
	}
	order, err := req.choice("order", "asc", "desc")
	if err != nil {
		return l, "", err
	}
	l.Descending = order == "desc"
	payload, err := req.choice("payload", "false", "true")
	if err != nil {
		return l, "", err
	}
	l.Payload = payload == "true"
	scope = scopeOf("messages", req.queue, status, order)
	if cursor, given := req.query["cursor"]; given {
		if l.After, err = unsealPlace(scope, cursor); err != nil {
			return l, "", err
		}
		if l.Status != "" && l.After.Status != l.Status {
			return l, "", refuse(errBadRequest, "The cursor is damaged.")
		}
	}
	return l, scope, nil
}

// maxAnswer is the longest body of an answer, in bytes: in base64 it is below
// the 6,291,556 bytes that Lambda returns.
const maxAnswer = 4_500_000

// page is the body of a list being written. It ends before it grows too long.
type page struct {
	body  []byte
	items int
}

func newPage(name string) *page {
	return &page{body: []byte(`{"` + name + `":[`)}
}

// add appends an item if it fits. The first always does.
func (p *page) add(item any) (fits bool, err error) {
	text, err := encode(item)
	if err != nil {
		return false, err
	}
	const rest = len(`,],"next_cursor":""}`) + maxCursor
	if len(p.body)+len(text)+rest > maxAnswer {
		return false, nil
	}
	if p.items++; p.items > 1 {
		p.body = append(p.body, ',')
	}
	p.body = append(p.body, text...)
	return true, nil
}

// reply ends the page. An empty cursor is for the last one.
func (p *page) reply(cursor string) (response, error) {
	p.body = append(p.body, `],"next_cursor":`...)
	if cursor == "" {
		p.body = append(p.body, `null}`...)
	} else {
		p.body = append(p.body, `"`+cursor+`"}`...)
	}
	return replyJSON(http.StatusOK, p.body), nil
}
