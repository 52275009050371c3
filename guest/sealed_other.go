// SPDX-License-Identifier: Apache-2.0

//go:build embedguest && !linux

package guest

import (
	"fmt"
	"io"
	"os"
)

// sharedFile is a program; elsewhere than on Linux it is not started often.
type sharedFile struct{}

func (*sharedFile) open(write func(io.Writer) error) (*os.File, error) { return sealed(write) }

// sealed returns the program that write writes as an open file without a name.
func sealed(write func(io.Writer) error) (*os.File, error) {
	f, err := os.CreateTemp("", AgentArgv0+"-")
	if err != nil {
		return nil, fmt.Errorf("guest agent: %w", err)
	}
	defer os.Remove(f.Name())
	if err := write(f); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}
