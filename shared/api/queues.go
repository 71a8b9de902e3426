package api

import (
	"context"
	"net/http"
	"time"

	"github.com/redrivehq/redrive/shared/message"
)

// usualQueueLimit is the number of queues on a page if the client does not say.
const usualQueueLimit = 100

// listQueues shows a page of queues.
func listQueues(ctx context.Context, svc *message.Service, req *request) (response, error) {
	limit, err := req.limit(usualQueueLimit, message.MaxListLimit)
	if err != nil {
		return response{}, err
	}
	prefix := req.query["prefix"]
	if len(prefix) > maxQueueName { // nor could a key of DynamoDB hold one of any length
		return response{}, refuse(errBadRequest, "The prefix must have at most 128 bytes of UTF-8, as a queue name.")
	}
	scope, after := scopeOf("queues", prefix), ""
	if cursor, given := req.query["cursor"]; given {
		if after, err = unseal(scope, cursor); err != nil {
			return response{}, err
		}
		if queueNameFault(after) != "" {
			return response{}, refuse(errBadRequest, "The cursor is damaged.")
		}
	}
	queues, more, err := svc.ListQueues(ctx, prefix, after, limit)
	if err != nil {
		return response{}, err
	}
	page := newPage("queues")
	for _, q := range queues {
		if _, err := page.add(summaryOf(q)); err != nil { // 250 always fit
			return response{}, err
		}
	}
	if more {
		return page.reply(seal(scope, queues[len(queues)-1].Name))
	}
	return page.reply("")
}

// getQueue shows a queue's settings and counts.
func getQueue(ctx context.Context, svc *message.Service, req *request) (response, error) {
	q, err := svc.Queue(ctx, req.queue)
	if err != nil {
		return response{}, err
	}
	return reply(http.StatusOK, queueViewOf(q))
}

// putQueue replaces a queue's settings.
func putQueue(ctx context.Context, svc *message.Service, req *request) (response, error) {
	in, err := req.object(true) // no field is required: nothing stands for the defaults
	if err != nil {
		return response{}, err
	}
	set := in.settings()
	faults, err := svc.SettingsFaults(ctx, req.queue, set)
	if err != nil {
		return response{}, err
	}
	if err := in.check(faults); err != nil {
		return response{}, err
	}
	q, created, err := svc.PutQueue(ctx, req.queue, set)
	if err != nil {
		return response{}, err
	}
	if created {
		return reply(http.StatusCreated, queueViewOf(q))
	}
	return reply(http.StatusOK, queueViewOf(q))
}

// deleteQueue deletes an empty queue.
func deleteQueue(ctx context.Context, svc *message.Service, req *request) (response, error) {
	if err := req.noFields(); err != nil {
		return response{}, err
	}
	if err := svc.DeleteQueue(ctx, req.queue); err != nil {
		return response{}, err
	}
	return response{status: http.StatusNoContent}, nil
}

// settings reads the body of a PUT. What is left out takes its default.
func (o *object) settings() message.Settings {
	set := message.DefaultSettings()
	assign(&set.MaxRetries, o.integer("max_retries"))
	assign(&set.ProcessingTimeout, o.wholeSeconds("processing_timeout"))
	assign(&set.MaxStalls, o.integer("max_stalls"))
	assign(&set.RequireReceipt, o.boolean("require_receipt"))
	set.Shards = o.integer("shards")
	if backoff := o.object("backoff"); backoff != nil {
		set.Backoff = backoff.backoff()
	}
	assign(&set.SucceededDays, o.float("succeeded_days"))
	if !o.null("dead_days") {
		set.DeadDays = o.float("dead_days")
	}
	if o.find("endpoint") != nil && !o.null("endpoint") {
		o.ignore("endpoint")
		o.fault("endpoint", message.CodeInvalid, "must be null: this version does not push yet.")
	}
	o.ignore("queue", "created_at", "depth", "depth_more", "oldest_pending_at", "oldest_dead_at", "counted_at",
		"endpoint_status")
	return set
}

// backoff reads either form. With a schedule, what belongs to the other form is
// not known.
func (o *object) backoff() message.Backoff {
	b := message.DefaultSettings().Backoff
	if jitter := o.text("jitter"); jitter != nil {
		b.Jitter = message.Jitter(*jitter)
	}
	if o.find("schedule_seconds") != nil {
		b.Schedule = o.list("schedule_seconds")
	} else {
		assign(&b.Initial, o.seconds("initial_seconds"))
		assign(&b.Factor, o.float("factor"))
		assign(&b.Max, o.seconds("max_seconds"))
	}
	*o.faults = append(*o.faults, o.unknown()...)
	return b
}

// assign sets a value that was given.
func assign[T any](to *T, given *T) {
	if given != nil {
		*to = *given
	}
}

// queueView is a queue as clients see it: its settings, and what GET adds.
type queueView struct {
	Queue             string      `json:"queue"`
	MaxRetries        int         `json:"max_retries"`
	ProcessingTimeout int         `json:"processing_timeout"`
	MaxStalls         int         `json:"max_stalls"`
	RequireReceipt    bool        `json:"require_receipt"`
	Shards            int         `json:"shards"`
	Backoff           backoffView `json:"backoff"`
	SucceededDays     float64     `json:"succeeded_days"`
	DeadDays          *float64    `json:"dead_days"`
	Endpoint          *struct{}   `json:"endpoint"` // null until queues push
	CreatedAt         timestamp   `json:"created_at"`
	countsView
}

type backoffView struct {
	InitialSeconds  *float64       `json:"initial_seconds,omitzero"`
	Factor          *float64       `json:"factor,omitzero"`
	MaxSeconds      *float64       `json:"max_seconds,omitzero"`
	ScheduleSeconds []float64      `json:"schedule_seconds,omitzero"`
	Jitter          message.Jitter `json:"jitter"`
}

// summaryView is a queue in a list of queues.
type summaryView struct {
	Queue     string    `json:"queue"`
	CreatedAt timestamp `json:"created_at"`
	countsView
	EndpointStatus *string `json:"endpoint_status"` // null until queues push
}

// countsView is what was counted; all null before the first count.
type countsView struct {
	Depth           *depthView       `json:"depth"`
	DepthMore       []message.Status `json:"depth_more"`
	OldestPendingAt *timestamp       `json:"oldest_pending_at"`
	OldestDeadAt    *timestamp       `json:"oldest_dead_at"`
	CountedAt       *timestamp       `json:"counted_at"`
}

type depthView struct {
	Pending    int `json:"pending"`
	Processing int `json:"processing"`
	Succeeded  int `json:"succeeded"`
	Dead       int `json:"dead"`
}

func queueViewOf(q message.Queue) queueView {
	set := q.Settings
	v := queueView{
		Queue: q.Name, MaxRetries: set.MaxRetries, ProcessingTimeout: int(set.ProcessingTimeout.Seconds()),
		MaxStalls: set.MaxStalls, RequireReceipt: set.RequireReceipt, Shards: *set.Shards,
		Backoff:       backoffView{Jitter: set.Backoff.Jitter},
		SucceededDays: set.SucceededDays, DeadDays: set.DeadDays,
		CreatedAt: timestamp(q.CreatedAt), countsView: countsViewOf(q.Counts),
	}
	if set.Backoff.Schedule == nil {
		v.Backoff.InitialSeconds = seconds(set.Backoff.Initial)
		v.Backoff.Factor = &set.Backoff.Factor
		v.Backoff.MaxSeconds = seconds(set.Backoff.Max)
	}
	for _, delay := range set.Backoff.Schedule {
		v.Backoff.ScheduleSeconds = append(v.Backoff.ScheduleSeconds, *seconds(delay))
	}
	return v
}

func summaryOf(q message.Queue) summaryView {
	return summaryView{Queue: q.Name, CreatedAt: timestamp(q.CreatedAt), countsView: countsViewOf(q.Counts)}
}

func countsViewOf(c *message.Counts) countsView {
	if c == nil {
		return countsView{}
	}
	v := countsView{
		Depth: &depthView{
			Pending: c.Depth[message.Pending], Processing: c.Depth[message.Processing],
			Succeeded: c.Depth[message.Succeeded], Dead: c.Depth[message.Dead],
		},
		DepthMore:       []message.Status{},
		OldestPendingAt: stamp(c.OldestPending), OldestDeadAt: stamp(c.OldestDead), CountedAt: stamp(c.At),
	}
	for _, status := range message.Statuses() {
		if c.More[status] {
			v.DepthMore = append(v.DepthMore, status)
		}
	}
	return v
}

// seconds is exact to the millisecond, so that what is shown can be written
// back; Duration.Seconds is not.
func seconds(d time.Duration) *float64 { return new(float64(d.Milliseconds()) / 1000) }
