// SPDX-License-Identifier: Apache-2.0

//go:build unix

package image

import "syscall"

// nonblock keeps the opening of a pipe, put where a file should be, from
// waiting for a writer.
const nonblock = syscall.O_NONBLOCK
