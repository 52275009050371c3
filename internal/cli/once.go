// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"github.com/spf13/pflag"

	"github.com/caisson-run/caisson/sandbox"
)

// once is a flag for a file that bounds a call: of two the last would count, and what
// the first forbids would be allowed.
type once struct {
	to    *string
	given bool
}

// Set takes a value, once.
func (o *once) Set(s string) error {
	if o.given {
		return &sandbox.Error{Kind: sandbox.ErrInvalid, Problem: "it is given twice", Hint: "write what both say into one file"}
	}
	*o.to, o.given = s, true
	return nil
}

// String is the value.
func (o *once) String() string {
	if o.to == nil {
		return ""
	}
	return *o.to
}

// Type is how help calls it.
func (o *once) Type() string { return "string" }

// policyVar adds --policy.
func policyVar(fs *pflag.FlagSet, to *string, help string) {
	fs.Var(&once{to: to}, "policy", help)
}
