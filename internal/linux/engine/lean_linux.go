// SPDX-License-Identifier: Apache-2.0

//go:build lean

package engine

import (
	"io"

	"github.com/caisson-run/caisson/sandbox"
)

// unpack has nothing to unpack: what is not on the shelf is put there by the other
// program of caisson's file. It was there when this one began.
func (p *Program) unpack(io.Writer) error {
	return &sandbox.Error{Op: "engine", Kind: sandbox.ErrUnavailable, Problem: "it was taken away meanwhile, and this program does not carry it",
		Hint: "run it again: what is missing is unpacked then"}
}
