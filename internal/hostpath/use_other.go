// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package hostpath

// Use is one read-write mount of a sandbox.
type Use struct {
	Run, StateDir, Level string
	Own, Shared          bool
}

// Claim does nothing here.
func (*Source) Claim(Use) error { return nil }

// Unclaimed calls do.
func (*Source) Unclaimed(_ string, do func() error) error { return do() }
