// SPDX-License-Identifier: Apache-2.0

// Package cgroup puts a sandbox into a control group of its own, so that its
// limits hold for everything in it together, and takes it away again.
//
// It speaks version 1 and version 2 directly through the file system: the hot
// path is a handful of mkdirs and writes, and no library is needed for that.
//
//	Detect            where may this process make groups, and if not, why not
//	Current           the same, by the last look where this process is as it was
//	Host.Create       <base>/caisson/<name> with its limits
//	Group.Start       start the sandbox inside, without moving the caller
//	Group.Leave       step out of a group that one was started in
//	Group.Kill        everything in it, however it forks
//	Group.Remove      the group, and "caisson" when it was the last
//
// The base is the nearest group that was really handed to this process: a
// delegated one (systemd's Delegate=yes, a chowned subtree, the root of a
// container's own namespace), or for root the top of the hierarchy. A unit of
// systemd that was not delegated is never touched, because systemd may undo what
// others write there (https://systemd.io/CGROUP_DELEGATION).
//
// Version 2 forbids processes in a group that hands controllers down. Where
// the base is a delegated group that holds nothing but this very process,
// Create first moves it into a leaf beside, "caisson-self".
package cgroup
