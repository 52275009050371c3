// SPDX-License-Identifier: Apache-2.0

package environment

// A nil Environment, of a program that runs in what another call made, has nothing of
// the host's to look after.

// MayHaveRun notes that code may have run from here on.
func (e *Environment) MayHaveRun() {
	if e != nil {
		e.Found.Ran = true
	}
}

// Outcome is what came of the read-write mounts.
func (e *Environment) Outcome() *Found {
	if e == nil {
		return &Found{}
	}
	return e.Found
}

// KeptNames are names of the host's that must stay what they are.
func (e *Environment) KeptNames() Kept {
	if e == nil {
		return nil
	}
	return e.Kept
}
