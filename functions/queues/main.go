// Queues is the Lambda function of GET /queues and GET, PUT and DELETE /queues/{queue}.
package main

import "github.com/redrivehq/redrive/shared/setup"

func main() { setup.HTTP("queues") }
