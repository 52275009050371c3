// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package changes

import (
	"errors"
	"os"

	"github.com/caisson-run/caisson/sandbox"
)

const (
	lockShared = iota
	lockTry
	lockExclusive
)

var errLocked = errors.New("it is in use")

func lockFile(string, int) (*os.File, error) { return nil, unsupported("keep change sets") }

func unsupported(op string) error {
	return &sandbox.Error{Op: op, Kind: sandbox.ErrUnsupported, Problem: "files are compared and put in place as Linux does it", Hint: "run caisson on Linux"}
}
