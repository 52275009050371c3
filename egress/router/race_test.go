// SPDX-License-Identifier: Apache-2.0

//go:build race

package router

// soakRoom is wider here: the race detector keeps several bytes for each.
const soakRoom = 256 << 20
