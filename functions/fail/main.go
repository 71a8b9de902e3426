// Fail is the Lambda function of POST /queues/{queue}/messages/{id}/fail.
package main

import "github.com/redrivehq/redrive/shared/setup"

func main() { setup.HTTP("fail") }
