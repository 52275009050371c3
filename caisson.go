// SPDX-License-Identifier: Apache-2.0

// Package caisson runs what AI agents write where it can do no harm.
//
// A program that uses it begins main with [Reexec].
package caisson
