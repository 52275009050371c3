// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/spf13/pflag"

	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
)

// Bounds of flags that have none of their own: what the API takes for a time, and how
// many of something are all.
const (
	leastTime = time.Millisecond
	maxTime   = 365 * 24 * time.Hour
	maxCount  = math.MaxInt32
)

// ranged is the value of a flag that is read with its range.
type ranged[T int | time.Duration] struct {
	to   *T
	kind string // in help
	read func(string) (T, error)
}

func (r *ranged[T]) String() string {
	if r.to == nil {
		return "" // pflag looks at a zero value
	}
	return fmt.Sprint(*r.to)
}

func (r *ranged[T]) Type() string { return r.kind }

func (r *ranged[T]) Set(s string) error {
	v, err := r.read(s)
	if err == nil {
		*r.to = v
	}
	return err
}

// countVar adds a flag for a number from least to most.
func countVar(fs *pflag.FlagSet, to *int, name, short string, def, minimum, maximum int, help string) {
	*to = def
	fs.VarP(&ranged[int]{to, "N", func(s string) (int, error) {
		n, err := strconv.Atoi(s)
		if err != nil || n < minimum || n > maximum {
			return 0, &sandbox.Error{Kind: sandbox.ErrInvalid, Problem: sandbox.Quoted(s) + " is out of range",
				Hint: fmt.Sprintf("write a whole number from %d to %d", minimum, maximum)}
		}
		return n, nil
	}}, name, short, help)
}

// timeVar adds a flag for a time from least to most.
func timeVar(fs *pflag.FlagSet, to *time.Duration, name string, def, minimum, maximum time.Duration, help string) {
	*to = def
	f := fs.VarPF(&ranged[time.Duration]{to, "TIME", func(s string) (time.Duration, error) {
		return policy.ParseDurationFrom(s, minimum, maximum)
	}}, name, "", help)
	if def == 0 {
		f.DefValue = "" // none, in help
	}
}
