// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strconv"
	"strings"

	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
	"github.com/caisson-run/caisson/session/persistent"
)

// warm reads the values of --warm, TEMPLATE=N or TEMPLATE=MIN..MAX each: how many sandboxes of
// a template are kept ready.
func warm(flags []string) (map[string]persistent.WarmRange, error) {
	all := map[string]persistent.WarmRange{}
	for _, text := range flags {
		fail := func(problem string) error {
			return &sandbox.Error{Op: "--warm " + text, Kind: sandbox.ErrInvalid, Problem: problem, Hint: "write data=8, or data=2..8, with numbers from 0 to " + strconv.Itoa(session.MaxReady)}
		}
		name, value, found := strings.Cut(text, "=")
		if _, twice := all[name]; twice {
			return nil, fail("the template is there twice")
		}
		from, to, ranged := strings.Cut(value, "..")
		if !ranged {
			to = from
		}
		least, err := strconv.ParseUint(from, 10, 16)
		limit, err2 := strconv.ParseUint(to, 10, 16)
		switch {
		case !found || name == "" || err != nil || err2 != nil:
			return nil, fail("it is no TEMPLATE=N")
		case limit > session.MaxReady || least > limit:
			return nil, fail("its numbers are out of range")
		}
		all[name] = persistent.WarmRange{Min: int(least), Max: int(limit)}
	}
	return all, nil
}

// warmMemory reads the value of --warm-memory; empty is no bound.
func warmMemory(text string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	n, err := policy.ParseSize(text)
	if err == nil && n <= 0 {
		err = sandbox.Errorf(sandbox.ErrInvalid, "", "it is none")
	}
	if err != nil {
		return 0, &sandbox.Error{Op: "--warm-memory " + text, Kind: sandbox.ErrInvalid, Problem: "it is no size", Hint: "write 4GiB, for example", Cause: err}
	}
	return n, nil
}
