// SPDX-License-Identifier: Apache-2.0

package shelf

import "os"

// Has says whether what a run will want is kept below a state directory, and was since
// the kernel was started: the engine, and the router. It is for a program that cannot
// unpack them, and judges the way there as [Kept] does.
func Has(state string, engine, router bool) bool {
	for _, want := range []struct {
		it   bool
		kept func(string) (*os.File, error)
	}{{engine, Kept}, {router, KeptRouter}} {
		if !want.it {
			continue
		}
		f, err := want.kept(state)
		if err != nil {
			return false
		}
		f.Close()
	}
	return true
}
