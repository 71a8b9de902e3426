// Package api is the wire format: it turns an API Gateway event into a call of
// [message.Service], and what comes of it into an answer.
//
// [Routes] is its first page. Behind each route stands one handler, in the file
// of its verb: read the request, call the service, render. Errors become problem
// documents in one table. [API.Function] puts around every handler what they
// share: it checks the event, path and query, recovers panics and logs.
//
// The package knows no rule of the queue but how things are spelled: names of
// queues, keys, cursors, JSON. It knows no store, no AWS service, and no
// listening server.
package api
