// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package attack

import (
	"context"

	"github.com/caisson-run/caisson/sandbox"
)

// Run needs Linux: what it looks at is the host's /proc.
func Run(context.Context, Options) (*Report, error) {
	return nil, &sandbox.Error{Op: "attack", Kind: sandbox.ErrUnsupported, Problem: "it looks at sandboxes through the /proc of a Linux host",
		Hint: "run it on the Linux machine that the sandboxes run on"}
}
