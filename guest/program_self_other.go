// SPDX-License-Identifier: Apache-2.0

//go:build !linux && !embedguest

package guest

import (
	"errors"
	"os"
)

// OpenAgent has no agent: the running program is none for Linux. A build with
// `make` has one.
func OpenAgent() (*os.File, error) {
	return nil, errors.New("this build has no agent for Linux; use one made by make")
}
