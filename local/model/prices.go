package main

// List prices of us-east-1 on demand, in dollars per million, as known in
// November 2026. They are the same as in docs/capacity.md, which a test compares.
const (
	writeUnitPrice = 0.625              // DynamoDB, a write request unit
	readUnitPrice  = 0.125              // a read request unit
	callPrice      = 1.00 + 0.20 + 0.02 // a request to an HTTP API, a call of a function, a few of its milliseconds
	sqsPrice       = 0.40               // a request to a standard queue of SQS
)

const million = 1e6

// monthSeconds are those of 730 hours, a twelfth of a year.
const monthSeconds = 730 * 3600
