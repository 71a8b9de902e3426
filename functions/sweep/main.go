// Sweep is the Lambda function that the schedule starts every minute: it ends the
// leases that ran out, counts queues, and reports depths and ages.
package main

import "github.com/redrivehq/redrive/shared/setup"

func main() { setup.Sweep() }
