// SPDX-License-Identifier: Apache-2.0

// Package idmap shows host files under another owner: an id-mapped mount
// (mount_setattr(2), Linux 5.12) of a directory or file in which what belongs
// to one host user appears as owned by a sandbox's private uid, and everything
// else as owned by the overflow user.
//
// A sandbox started by root runs its code under a uid that owns nothing on the
// host. That is the point of it, and it also means that the operator's own
// 0600 files, mounted into the sandbox, could not be read there. Changing
// their owner or mode is out of the question; a mount that translates is not.
//
// The mount is detached: it has no place in any mount namespace until the
// caller gives it one (move_mount(2)), and vanishes with its descriptor.
//
// The private ids of sandboxes and routers are drawn here, too.
package idmap
