// Claim is the Lambda function of POST /queues/{queue}/claim.
package main

import "github.com/redrivehq/redrive/shared/setup"

func main() { setup.HTTP("claim") }
