// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package overlay

import (
	"context"
	"errors"
	"io"
	"os"
)

// WriteTar refuses: only Linux has overlays.
func WriteTar(context.Context, *os.File, Marks, io.Writer) error { return errors.ErrUnsupported }
