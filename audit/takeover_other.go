// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package audit

import (
	"context"
	"os"

	"github.com/caisson-run/caisson/sandbox"
)

// holdTail fails: only Linux has programs that appended to audit.tail.
func holdTail(_ context.Context, path string) (*os.File, error) {
	return nil, &sandbox.Error{Op: "audit", Kind: sandbox.ErrUnsupported, Problem: path + " is read on Linux only",
		Hint: "run caisson audit ls there, with this state directory"}
}
