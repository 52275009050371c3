// SPDX-License-Identifier: Apache-2.0

//go:build embedengine

package main

// A binary that is its own engine needs protocol buffers in every half of gVisor's.
import _ "github.com/caisson-run/caisson/internal/later/postponed"
