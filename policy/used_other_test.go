// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package policy

import (
	"testing"
	"time"
)

var began = time.Now()

// used is the time since this process began, where the system does not say what it
// used of it.
func used(*testing.T) time.Duration { return time.Since(began) }
