// SPDX-License-Identifier: Apache-2.0

// Package shelf has the programs that this binary carries, packed, and the private
// directory in which they are kept once they have been unpacked (package engine).
//
// It imports next to nothing, so that it is initialised before most packages, and
// what is on the shelf can be executed before the rest is (sandbox/gvisor/newborn).
package shelf
