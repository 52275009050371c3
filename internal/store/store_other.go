// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package store

import (
	"context"
	"os"

	"github.com/caisson-run/caisson/sandbox"
)

// Dir is the state directory; there is none on this system.
type Dir struct{}

// RunDir is one sandbox's directory; there is none on this system.
type RunDir struct{}

func unsupported() error {
	return &sandbox.Error{Op: "state directory", Kind: sandbox.ErrUnsupported,
		Problem: "caisson keeps sandboxes on Linux only", Hint: "run caisson on a Linux host or in a Linux virtual machine"}
}

func open([]place, bool) (*Dir, error) { return nil, unsupported() }

func look([]place) (*Dir, error) { return nil, unsupported() }

// Path is empty.
func (*Dir) Path() string { return "" }

// Note is empty.
func (*Dir) Note() string { return "" }

// Close does nothing.
func (*Dir) Close() error { return nil }

// FreeSpace returns ErrUnsupported.
func (*Dir) FreeSpace() (Space, error) { return Space{}, unsupported() }

// Require returns ErrUnsupported.
func (*Dir) Require(int64) error { return unsupported() }

// Run returns ErrUnsupported.
func (*Dir) Run(string) (*RunDir, error) { return nil, unsupported() }

// Sweep returns ErrUnsupported.
func (*Dir) Sweep(context.Context, func(context.Context, string) error) ([]string, error) {
	return nil, unsupported()
}

// ID is empty.
func (*RunDir) ID() string { return "" }

// Path is empty.
func (*RunDir) Path() string { return "" }

// Remove does nothing.
func (*RunDir) Remove() error { return nil }

// Hold is nil.
func (*RunDir) Hold() *os.File { return nil }

// Release does nothing.
func (*RunDir) Release() {}

// RunPath returns ErrUnsupported.
func (*Dir) RunPath(string) (string, error) { return "", unsupported() }

// Adopt returns ErrUnsupported.
func (*Dir) Adopt(string, *os.File) (*RunDir, error) { return nil, unsupported() }
