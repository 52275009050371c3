// SPDX-License-Identifier: Apache-2.0

//go:build lean

package engine

import (
	"errors"
	"io"
)

// unpack has nothing to unpack: what is not on the shelf is put there by the other
// program of caisson's file.
func (p *Program) unpack(io.Writer) error {
	return errors.New("engine: it is not kept, and this program does not carry it")
}
