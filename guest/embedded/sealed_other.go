// SPDX-License-Identifier: Apache-2.0

//go:build embedguest && !linux

package embedded

import (
	"fmt"
	"os"
)

// shared is a program; elsewhere than on Linux nobody starts it often.
type shared struct{}

func (*shared) open(program []byte) (*os.File, error) { return sealed(program) }

// sealed returns program as an open file without a name.
func sealed(program []byte) (*os.File, error) {
	f, err := os.CreateTemp("", Argv0+"-")
	if err != nil {
		return nil, fmt.Errorf("guest agent: %w", err)
	}
	defer os.Remove(f.Name())
	if _, err := f.Write(program); err != nil {
		f.Close()
		return nil, fmt.Errorf("guest agent: %w", err)
	}
	return f, nil
}
