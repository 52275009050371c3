// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package mounts

import (
	"context"
	"errors"
	"io"
	"os"
)

// WriteUpper refuses: only Linux has overlays.
func WriteUpper(context.Context, *os.File, OverlayMarks, io.Writer) error {
	return errors.ErrUnsupported
}
