// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package hostpath

import (
	"context"
	"os"

	"github.com/caisson-run/caisson/sandbox"
)

// Scan is not supported here.
func Scan(_ context.Context, root *Source, _ ScanOptions) ([]Match, error) {
	return nil, sandbox.Errorf(sandbox.ErrUnsupported, "scan "+root.Name, "host paths cannot be judged on this system")
}

// Below is not supported here.
func (s *Source) Below(rel string) (*os.File, error) {
	return nil, sandbox.Errorf(sandbox.ErrUnsupported, "guard "+s.Name, "host paths cannot be judged on this system")
}

// Placeholders is not supported here.
type Placeholders struct{}

// Join is not supported here.
func Join(_ string, root *Source) (*Placeholders, error) {
	return nil, sandbox.Errorf(sandbox.ErrUnsupported, "guard "+root.Name, "host paths cannot be judged on this system")
}

// Make does nothing.
func (*Placeholders) Make([]Match) error { return nil }

// Files are none.
func (*Placeholders) Files([]Match) []string { return nil }

// Close does nothing.
func (*Placeholders) Close() error { return nil }

// Sweep does nothing.
func Sweep(string) error { return nil }

// Baseline is not supported here.
type Baseline struct{}

// Remember is not supported here.
func Remember(*Source, *Placeholders, []Match) *Baseline { return &Baseline{} }

// Look finds nothing.
func (*Baseline) Look(context.Context) []Finding { return nil }
