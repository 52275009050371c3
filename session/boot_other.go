// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package session

import (
	"crypto/rand"
	"sync"
	"time"

	"github.com/caisson-run/caisson/session/registry"
)

var began = sync.OnceValues(func() (string, time.Time) { return rand.Text(), time.Now() })

// sinceBoot counts from this process's start: each process counts for itself, and
// holds what others counted against it.
func sinceBoot() registry.Instant {
	boot, at := began()
	return registry.Instant{Boot: boot, Since: time.Since(at)}
}
