// SPDX-License-Identifier: Apache-2.0

//go:build !linux && !embedguest

package embedded

import (
	"errors"
	"os"
)

// Open has no agent: the running program is none for Linux. A build with
// `make` has one.
func Open() (*os.File, error) {
	return nil, errors.New("this build has no agent for Linux; use one made by make")
}
