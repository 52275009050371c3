// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package environment

import (
	"errors"

	"github.com/caisson-run/caisson/sandbox"
)

func makePlace(sandbox.Mount, string) error { return errors.ErrUnsupported }
