// SPDX-License-Identifier: Apache-2.0

//go:build !race

package router

// soakRoom is what the process may have grown by in the end, in bytes: what the
// allocator has spread over pages.
const soakRoom = 16 << 20
