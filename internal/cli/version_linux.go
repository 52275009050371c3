// SPDX-License-Identifier: Apache-2.0

package cli

import "github.com/caisson-run/caisson/internal/linux/engine"

// gvisorVersion is of the gVisor inside, which may be a program of its own in here.
func gvisorVersion() string { return engine.GVisor() }
