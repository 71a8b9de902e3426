// Package message holds the rules of the queue: what a message is, which
// states it passes through, when it is due again, what each verb may do, and
// which limits apply.
//
// A verb is one file. It holds the verb's [Transition], which defines the
// change as a pure value, and the method of [Service] that chooses it. A
// [Store] carries transitions out atomically and contains no rule.
//
// The package imports the standard library only. It knows no HTTP, JSON, SQL or
// AWS, reads no environment, and takes time and randomness from whoever makes
// the Service. Names of queues are checked where they enter, in package api.
package message
