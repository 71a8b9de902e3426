// Empty is a Lambda function that does nothing: what its start takes, the start of
// any function takes.
package main

import "github.com/aws/aws-lambda-go/lambda"

func main() { lambda.Start(func() {}) }
