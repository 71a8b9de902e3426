// Enqueue is the Lambda function of POST /queues/{queue}/messages.
package main

import "github.com/redrivehq/redrive/shared/setup"

func main() { setup.HTTP("enqueue") }
