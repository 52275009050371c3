// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package caisson

import "github.com/caisson-run/caisson/sandbox"

// Drivers are none: no level runs on this system yet.
func Drivers() map[string]sandbox.Driver { return nil }
