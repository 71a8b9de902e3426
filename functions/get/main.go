// Get is the Lambda function of GET /queues/{queue}/messages/{id}.
package main

import "github.com/redrivehq/redrive/shared/setup"

func main() { setup.HTTP("get") }
