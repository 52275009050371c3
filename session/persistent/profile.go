// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"fmt"
	"math"
	"time"

	"github.com/caisson-run/caisson/sandbox"
)

// Profile is how much a key may have. A policy file may allow less or more of
// the limits of one sandbox; the quota holds all the same.
type Profile struct {
	// Limits are those of each sandbox where its policy says nothing.
	Limits sandbox.Limits
	// Timeout is how long a sandbox lives by default; MaxTimeout is the longest
	// that may be asked for. 0 is 5 minutes and 24 hours.
	Timeout, MaxTimeout time.Duration
	// Quota bounds all sandboxes of the key together.
	Quota Quota
}

// LivingLimits are the default limits of a persistent sandbox: no wall clock,
// since its timeout bounds it, and no output limit, which is a program's; 1 CPU,
// 512 MiB, 512 processes, 8192 files open in each, 1 GiB of disk and 256 MiB of
// /tmp. A wall limit that is written bounds the time that it runs in all its
// life, beside the timeout.
func LivingLimits() sandbox.Limits {
	const mib = 1 << 20
	return sandbox.Limits{
		CPUs: 1, Memory: 512 * mib, Processes: 512, OpenFiles: 8192, Disk: 1024 * mib, Inodes: 512 * 1024, Tmp: 256 * mib,
	}
}

// DefaultProfile is what a key may have that is bound to none.
func DefaultProfile() Profile {
	return Profile{
		Limits: LivingLimits(), Timeout: 5 * time.Minute, MaxTimeout: 24 * time.Hour,
		Quota: Quota{Sandboxes: 100, Paused: 100, Snapshots: 100, Templates: 100, TemplateSize: 32 << 30, Records: 10 << 30},
	}
}

func (p Profile) withDefaults() Profile {
	d := DefaultProfile()
	if p.Timeout <= 0 {
		p.Timeout = d.Timeout
	}
	if p.MaxTimeout <= 0 {
		p.MaxTimeout = d.MaxTimeout
	}
	return p
}

// Longest, as the time of a sandbox, is the longest that its key may have.
const Longest = time.Duration(math.MaxInt64)

// lifetime is how long a sandbox gets that asks for want.
func (p Profile) lifetime(want time.Duration) (time.Duration, error) {
	switch {
	case want < 0:
		return 0, sandbox.Errorf(sandbox.ErrInvalid, "timeout", "it is negative")
	case want == 0:
		return min(p.Timeout, p.MaxTimeout), nil
	case want == Longest:
		return p.MaxTimeout, nil
	case want > p.MaxTimeout:
		return 0, &sandbox.Error{Op: "timeout", Kind: sandbox.ErrInvalid, Problem: fmt.Sprintf("%s is more than the %s that this key may have", want, p.MaxTimeout),
			Hint: "ask for less, and extend it while it runs"}
	}
	return want, nil
}
