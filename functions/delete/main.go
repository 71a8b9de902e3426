// Delete is the Lambda function of DELETE /queues/{queue}/messages/{id}.
package main

import "github.com/redrivehq/redrive/shared/setup"

func main() { setup.HTTP("delete") }
