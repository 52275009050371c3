// SPDX-License-Identifier: Apache-2.0

// Package process is the level of isolation that is nearest to the host: the
// kernel's own namespaces, control groups, Landlock and seccomp around ordinary
// processes. It is the fastest level, and the only one on which code inside
// talks to the host's kernel itself.
//
// A sandbox is made by raw system calls from a prebuilt list ([script]), in a
// child that shares caisson's memory until it is done (clone with CLONE_VM and
// CLONE_VFORK), so that nothing is copied and nothing is executed again:
//
//	caisson ──clone──► builder     makes the root,  then ends
//	   │                 ├─────► init      pid 1: reaps, and sleeps
//	   │                 └─────► program   pid 2: what is run, or the guest agent
//	   └── parent of all three (CLONE_PARENT)
//
// caisson is the program's parent, so exit status and resource usage are the
// kernel's own word. init is a program of a few instructions ([idle]) that holds
// nothing and knows nothing; when it dies, and it dies with caisson, everything
// inside dies.
//
// Every sandbox has a user namespace. For root it maps a private pair of host
// uids that own nothing; for an ordinary user the caller's own uid, as uid 1000.
package process

// Name is what --isolation takes.
const Name = "process"
