// SPDX-License-Identifier: Apache-2.0

//go:build !embedengine

package shelf

import (
	"errors"
	"os"
)

// Kept is an error: a program that carries no engine keeps none.
func Kept(string) (*os.File, error) {
	return nil, errors.New("engine: this program is its own")
}

// KeptRouter is an error in the same way.
func KeptRouter(string) (*os.File, error) { return Kept("") }
