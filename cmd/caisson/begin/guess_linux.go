// SPDX-License-Identifier: Apache-2.0

package begin

import "strings"

// guess is what a command line will most likely ask for.
type guess struct {
	level   string // empty: nothing will run, or elsewhere
	network bool
}

// guessed reads a command line. A policy, which may say something else, is not read.
func guessed(args []string) (g guess) {
	if len(args) < 3 || args[1] != "run" {
		return guess{}
	}
	g.level = "gvisor"
	for i, a := range args[2:] {
		name, value, joined := strings.Cut(a, "=")
		switch {
		case a == "--":
			return g
		case name == "--help" || a == "-h":
			return guess{}
		case name == "--allow":
			g.network = true
		case name != "--isolation":
		case joined:
			g.level = value
		case len(args) > i+3:
			g.level = args[i+3]
		default:
			g.level = ""
		}
	}
	return g
}
