// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package hostpath

import "github.com/caisson-run/caisson/sandbox"

// Open is not supported here: it decides on objects as Linux shows them.
func Open(path string, o Options) (*Source, error) {
	if err := checkName(path, o); err != nil {
		return nil, err
	}
	return nil, &sandbox.Error{Op: o.op(path), Kind: sandbox.ErrUnsupported, Problem: "host paths cannot be judged on this system", Hint: "run caisson on Linux"}
}
