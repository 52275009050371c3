// SPDX-License-Identifier: Apache-2.0

package begin

import "strings"

// guess is what a command line will most likely ask for.
type guess struct {
	level   string // empty: nothing will run, or elsewhere
	network bool
	state   string // what --state says; empty is not at all
	unsure  bool   // what it says cannot be told without knowing the flags
}

// guessed reads a command line. A policy, which may say something else, is not read.
func guessed(args []string) (g guess) {
	if len(args) < 3 || args[1] != "run" {
		return guess{}
	}
	g.level = "gvisor"
	g.state, g.unsure = told(args[2:])
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

// told is the state directory that a command line names: where nothing stands before, for
// what stands behind another word may be an argument of a program's, and a program is
// executed out of that directory. It is unsure where it may be named elsewhere.
func told(args []string) (state string, unsure bool) {
	const flag = "--state"
	name, value, joined := strings.Cut(args[0], "=")
	rest := args
	switch {
	case name != flag:
	case joined:
		state, rest = value, args[1:]
	case len(args) > 1:
		state, rest = args[1], args[2:]
	}
	for _, a := range rest {
		if name, _, _ := strings.Cut(a, "="); name == flag {
			return "", true
		}
		if a == "--" {
			break
		}
	}
	return state, false
}
