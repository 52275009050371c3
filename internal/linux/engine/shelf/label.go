// SPDX-License-Identifier: Apache-2.0

package shelf

import (
	"encoding/hex"
	"fmt"
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
		return Label{}, fmt.Errorf("engine: its label has %d fields, not 3", len(f))
	}
	digest, err := hex.DecodeString(f[0])
	if err != nil || len(digest) != 32 {
		return Label{}, fmt.Errorf("engine: its label has no digest")
	}
	size, err := strconv.ParseInt(f[1], 10, 64)
	if err != nil || size <= 0 {
		return Label{}, fmt.Errorf("engine: its label has no size")
	}
	return Label{Digest: f[0], Size: size, GVisor: f[2]}, nil
}
