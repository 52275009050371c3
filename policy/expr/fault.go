// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"fmt"
	"strings"
)

// Fault is what is wrong with a condition, and where in its text.
type Fault struct {
	Line, Column int // from 1, in characters
	Problem      string
}

// Faults are all that was found.
type Faults []Fault

// Error has all faults on one line, each with its place.
func (f Faults) Error() string {
	var all []string
	for _, one := range f {
		all = append(all, fmt.Sprintf("%d:%d: %s", one.Line, one.Column, one.Problem))
	}
	return strings.Join(all, "; ")
}
