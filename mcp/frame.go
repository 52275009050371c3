// SPDX-License-Identifier: Apache-2.0

package mcp

import (
	"io"

	"github.com/caisson-run/caisson/api"
)

// maxValues is how many values a message may be made of: results of tools may be
// long lists. Without it 16 MiB of [] were 400 MB here.
const maxValues = 200_000

// framed is a body that is made of no more. After that it reads nothing.
type framed struct {
	io.ReadCloser
	values api.Values
	err    error
}

func (f *framed) Read(p []byte) (int, error) {
	if f.err != nil {
		return 0, f.err
	}
	n, err := f.ReadCloser.Read(p)
	if f.values.Take(p[:n], maxValues) {
		return n, err
	}
	f.err = errMuch
	return 0, f.err
}
