// SPDX-License-Identifier: Apache-2.0

//go:build !race

package router

// soakRoom is what the memory of router, guest and server together may have
// grown by in the end, in bytes: what the collector and the allocator hold
// back, and no more for more connections.
const soakRoom = 64 << 20
