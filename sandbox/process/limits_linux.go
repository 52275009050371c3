// SPDX-License-Identifier: Apache-2.0

package process

import "github.com/caisson-run/caisson/internal/linux/cgroup"

// initShare is what init and the kernel's bookkeeping for it take of memory, and init
// itself.
var initShare = cgroup.Share{Memory: 1 << 20, Pids: 1}
