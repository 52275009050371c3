// SPDX-License-Identifier: Apache-2.0

// Package overlay reads what was written to an overlay mount: its upper layer
// (Documentation/filesystems/overlayfs.rst in the kernel).
package overlay
