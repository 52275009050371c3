// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"

	"github.com/caisson-run/caisson/sandbox"
)

// printed is standard output, which remembers that something could not be written.
// No command asks after each line: a user who prints a key that is shown once, or a
// policy into a file, is told at the end, and by the exit code.
type printed struct {
	file   *os.File
	failed error
}

// Write writes p.
func (p *printed) Write(b []byte) (int, error) {
	n, err := p.file.Write(b)
	p.note(err)
	return n, err
}

// note remembers the first error of who writes to the file by another way.
func (p *printed) note(err error) {
	if p.failed == nil {
		p.failed = err
	}
}

// err is what to say of it, if anything.
func (p *printed) err() *sandbox.Error {
	if p.failed == nil {
		return nil
	}
	return &sandbox.Error{Op: "standard output", Kind: sandbox.ErrUnavailable, Problem: "not all could be written", Cause: p.failed,
		Hint: "what was printed is not complete; see where the output goes to"}
}
