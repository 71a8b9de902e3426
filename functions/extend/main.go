// Extend is the Lambda function of POST /queues/{queue}/messages/{id}/extend.
package main

import "github.com/redrivehq/redrive/shared/setup"

func main() { setup.HTTP("extend") }
