// SPDX-License-Identifier: Apache-2.0

package session

import (
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/session/registry"
)

// bootID names this boot of the host.
var bootID = sync.OnceValue(func() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "unknown" // then a boot makes the clock go back, and no call gets through by that
	}
	return strings.TrimSpace(string(b))
})

// sinceBoot is the host's clock that cannot be set.
func sinceBoot() registry.Instant {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		panic("the host has no boot clock: " + err.Error()) // every Linux has
	}
	return registry.Instant{Boot: bootID(), Since: time.Duration(t.Nano())}
}
