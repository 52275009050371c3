// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"
	"strconv"
	"strings"
)

// Label says what a packed program is.
type Label struct {
	Digest string // SHA-256 of the program, 64 hexadecimal digits
	Size   int64  // of the program, in bytes
	GVisor string // version of gVisor's module in it
}

// String is the label as it lies beside the packed program.
func (l Label) String() string {
	return l.Digest + " " + strconv.FormatInt(l.Size, 10) + " " + l.GVisor + "\n"
}

// ParseLabel reads what String has written.
func ParseLabel(s string) (Label, error) {
	f := strings.Fields(s)
	if len(f) != 3 {
		return Label{}, errors.New("engine: its label has " + strconv.Itoa(len(f)) + " fields, not 3")
	}
	if len(f[0]) != 64 || strings.Trim(f[0], "0123456789abcdefABCDEF") != "" {
		return Label{}, errors.New("engine: its label has no digest")
	}
	size, err := strconv.ParseInt(f[1], 10, 64)
	if err != nil || size <= 0 {
		return Label{}, errors.New("engine: its label has no size")
	}
	return Label{Digest: f[0], Size: size, GVisor: f[2]}, nil
}
