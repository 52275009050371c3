// SPDX-License-Identifier: Apache-2.0

//go:build linux && !amd64

package prestart

import (
	"errors"
	"os"
)

// Bounds is not written for this processor; gVisor does the work itself.
func Bounds(gofer, kernel uint64, next string) ([]byte, error) {
	return nil, errors.ErrUnsupported
}

// Umounter is not written for this processor; gVisor does the work itself.
func Umounter(dir string) (*os.File, error) { return nil, errors.ErrUnsupported }
