// SPDX-License-Identifier: Apache-2.0

package mounts

// OverlayMarks says in which extended attributes the kernel notes what a directory of an
// upper layer does to the lower one's (Documentation/filesystems/overlayfs.rst). Others mean
// nothing, and code inside may have set them.
type OverlayMarks string

// The kinds of attributes: those of an overlay that the host's root mounted, and those of
// one with the option userxattr.
const (
	TrustedMarks OverlayMarks = "trusted"
	UserMarks    OverlayMarks = "user"
)
