// Fallback is the Lambda function of the route $default: 404, or 405 with the
// methods that the path has. It touches no table.
package main

import "github.com/redrivehq/redrive/shared/setup"

func main() { setup.Fallback() }
