// SPDX-License-Identifier: Apache-2.0

package session

import "strings"

// TerminalName is the name of the kind of terminal that the program has.
func (c *Call) TerminalName() string {
	if plainTerm(c.Term) {
		return c.Term
	}
	return "xterm-256color"
}

// plainTerm says whether s can be a terminal's name: it ends up in paths.
func plainTerm(s string) bool {
	return s != "" && len(s) <= 64 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-+_") == ""
}
