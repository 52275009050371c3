// SPDX-License-Identifier: Apache-2.0

//go:build !linux || !lean

package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "caisson-run is a part of caisson's file on Linux, and is built by make build")
	os.Exit(125)
}
