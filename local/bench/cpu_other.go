//go:build !unix

package main

import "time"

// cpuTime is known on Unix only.
func cpuTime() time.Duration { return 0 }
