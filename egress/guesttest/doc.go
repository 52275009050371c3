// SPDX-License-Identifier: Apache-2.0

// Package guesttest is the sandbox's end of a wire for tests: a TCP/IP stack
// that speaks through the same code as gVisor's kernel does.
package guesttest
