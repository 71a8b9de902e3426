// Succeed is the Lambda function of POST /queues/{queue}/messages/{id}/succeed.
package main

import "github.com/redrivehq/redrive/shared/setup"

func main() { setup.HTTP("succeed") }
