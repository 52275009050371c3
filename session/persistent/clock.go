// SPDX-License-Identifier: Apache-2.0

package persistent

import "time"

// Clock is what expiry goes by. [time.Time]s of it are compared with each other
// alone.
type Clock interface {
	Now() time.Time
	// AfterFunc calls f once, in a goroutine of its own, when d has passed, unless
	// stop was called before, which then says true.
	AfterFunc(d time.Duration, f func()) (stop func() bool)
}

type hostClock struct{}

func (hostClock) Now() time.Time { return time.Now() }

func (hostClock) AfterFunc(d time.Duration, f func()) func() bool { return time.AfterFunc(d, f).Stop }
