// SPDX-License-Identifier: Apache-2.0

// Package overlay reads what was written to an overlay mount: its upper layer
// (Documentation/filesystems/overlayfs.rst in the kernel).
package overlay

// Marks says which extended attributes the kernel notes in an upper layer what a directory
// does to the lower one's. Others mean nothing, and code inside may have set them.
type Marks string

// The kinds of attributes: those of an overlay that the host's root mounted, and those of
// one with the option userxattr.
const (
	Trusted Marks = "trusted"
	User    Marks = "user"
)
