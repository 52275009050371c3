// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package persistent

import "os"

// nextData finds no holes.
func nextData(_ *os.File, at int64) (int64, error) { return at, nil }
