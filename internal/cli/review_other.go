// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package cli

import (
	"context"
	"io"
	"os"
	"syscall"

	"github.com/caisson-run/caisson/sandbox"
)

// review keeps the change set: this system's terminal cannot be asked.
func (a *app) review(_ context.Context, _ *opened, c *sandbox.Changes, _ <-chan syscall.Signal) error {
	if c != nil && c.ID != "" {
		a.note("this system's terminal cannot be asked: the change set is kept")
	}
	return nil
}

// endable is of no use here.
func endable(tty *os.File) (_ io.Reader, end func(), err error) { return tty, func() {}, nil }
