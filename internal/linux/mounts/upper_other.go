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

// WriteRoot refuses: only Linux has overlays.
func WriteRoot(context.Context, *os.File, OverlayMarks, func(string) bool, io.Writer) error {
	return errors.ErrUnsupported
}
