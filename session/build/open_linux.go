// SPDX-License-Identifier: Apache-2.0

package build

import "golang.org/x/sys/unix"

// nonblock keeps an open of what has become a pipe from waiting for a writer.
const nonblock = unix.O_NONBLOCK
