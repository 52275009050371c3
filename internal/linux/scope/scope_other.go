// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package scope

import (
	"context"

	"github.com/caisson-run/caisson/sandbox"
)

// Enter does nothing: there are no control groups outside of Linux.
func Enter(context.Context) (entered bool, err error) { return false, Available() }

// Join does nothing.
func Join(context.Context, string) (joined bool, err error) { return false, nil }

// Available says that there is nothing to enter.
func Available() error {
	return sandbox.Errorf(sandbox.ErrUnsupported, "enter a delegated scope", "this system has no control groups")
}
