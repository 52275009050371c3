// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package main

import "github.com/caisson-run/caisson/sandbox"

// drivers are none: no level runs on this system.
func drivers() map[string]sandbox.Driver { return nil }
