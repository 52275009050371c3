// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package gitimport

import (
	"context"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session/changes"
)

// Branch is not known here: sets are made on Linux.
func Branch(context.Context, *changes.Contents, Options) (*Branched, error) {
	return nil, sandbox.Errorf(sandbox.ErrUnsupported, "make a branch", "this system has no sandboxes")
}

// CheckBranch is not known here.
func CheckBranch(string) error { return nil }
