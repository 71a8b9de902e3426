// Replay is the Lambda function of POST /queues/{queue}/messages/{id}/replay.
package main

import "github.com/redrivehq/redrive/shared/setup"

func main() { setup.HTTP("replay") }
