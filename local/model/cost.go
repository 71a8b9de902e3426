package main

import "math"

// usage is what something asks for that is billed, on average.
type usage struct {
	writes, reads float64 // units of DynamoDB
	calls         float64 // of the HTTP API, and of the function behind it
	requests      float64 // to SQS, as it counts them
}

// plus adds another usage so many times.
func (u usage) plus(times float64, other usage) usage {
	return usage{
		u.writes + times*other.writes, u.reads + times*other.reads,
		u.calls + times*other.calls, u.requests + times*other.requests,
	}
}

// database is the share of DynamoDB in dollars, in dollars per million.
func (u usage) database() float64 { return u.writes*writeUnitPrice + u.reads*readUnitPrice }

// dollars is the price of a million.
func (u usage) dollars() float64 { return u.database() + u.calls*callPrice + u.requests*sqsPrice }

// life is what a message asks for: from enqueue to success, and what each
// attempt that fails before it adds.
type life struct{ happy, failure usage }

// at returns what a message asks for on average where each attempt fails with
// that probability, whatever became of those before, and is repeated until one
// succeeds: then failing/(1−failing) attempts fail.
func (l life) at(failing float64) usage { return l.happy.plus(failing/(1-failing), l.failure) }

// redrive returns what was measured: enqueue, claim and success are a call each, a
// failed attempt is a claim and its answer.
func redrive(p Payload) life {
	return life{
		happy:   usage{writes: p.Happy.Writes, reads: p.Happy.Reads, calls: 3},
		failure: usage{writes: p.Failure.Writes, reads: p.Failure.Reads, calls: 2},
	}
}

// What SQS bills and allows.
const (
	sqsChunk   = 64 * kb   // of payload that one request carries; more counts as more requests
	sqsMessage = 1024 * kb // the largest message, and the largest batch: 1 MiB since August 2025, 256 KiB before
	sqsBatch   = 10        // messages in one request, at most
)

// sqs returns what a message in a standard queue asks for: it is sent, received
// and deleted. One that fails is put back for as long as its backoff says, and
// received again. With a batch, ten or as many as fit share each request.
func sqs(bytes int, batched bool) life {
	n := 1
	if batched {
		n = min(sqsBatch, sqsMessage/bytes)
	}
	each := func(requests int) float64 { return float64(requests) / float64(n) }
	carry, name := each(ceil(n*bytes, sqsChunk)), each(1) // with the payloads, and with handles alone
	return life{
		happy:   usage{requests: carry + carry + name},
		failure: usage{requests: name + carry},
	}
}

func ceil(a, b int) int { return (a + b - 1) / b }

// counted is what DynamoMQ (commit e76c688) was counted to ask for on an engine, by
// the size of its payload.
type counted struct {
	bytes          int
	happy, failure usage
	receive        float64 // read units of one receive, with 1,000 messages waiting
}

func dynamoMQCounts() []counted {
	return []counted{
		{100, usage{writes: 6, reads: 1.5}, usage{writes: 4, reads: 1.5}, 9.5},
		{1 * kb, usage{writes: 12, reads: 1.5}, usage{writes: 8, reads: 1.5}, 37.5},
		{10 * kb, usage{writes: 66, reads: 2.5}, usage{writes: 44, reads: 4.5}, 127.5},
	}
}

// dynamoMQ returns what the counts say, for other payloads too. It keeps the
// payload in the message and all of the message in its index, so that six writes
// on the happy path and four a failure are each billed on all of it: with n KB for
// payload and the rest, 6n and 4n write units. This and the reads below give all
// six counts. It is a library: there is no call of an API.
func dynamoMQ(bytes int) life {
	n := math.Floor(float64(bytes)/kb) + 1
	pages := math.Ceil(n / 4)
	return life{
		happy:   usage{writes: 6 * n, reads: 1 + pages/2},
		failure: usage{writes: 4 * n, reads: 1.5 * pages},
	}
}

// idle returns the dollars a month of workers that find nothing, each asking so
// often a second. What a claim of nothing adds for the leases it adds once in five
// seconds an instance, and here each worker meets an instance of its own.
func idle(c Counts, workers int, polls float64) float64 {
	looks := min(polls, 1/lookEvery.Seconds())
	second := usage{reads: polls*c.Poll.Reads + looks*c.Look.Reads, calls: polls}
	return float64(workers) * second.dollars() / million * monthSeconds
}

// sqsWait is the longest that a request for messages waits, in seconds.
const sqsWait = 20

// idleSQS returns the same for workers that wait on SQS as long as it lets them.
func idleSQS(workers int) float64 {
	return float64(workers) / sqsWait * usage{requests: 1}.dollars() / million * monthSeconds
}

// idleDynamoMQ returns the least that the same costs with DynamoMQ, which was not
// counted: a query of nothing, half a read unit.
func idleDynamoMQ(workers int, polls float64) float64 {
	return float64(workers) * polls * usage{reads: 0.5}.dollars() / million * monthSeconds
}
