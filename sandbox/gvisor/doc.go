// SPDX-License-Identifier: Apache-2.0

// Package gvisor is the default level of isolation: gVisor's application
// kernel, embedded in the caisson binary.
//
// A sandbox is three processes beside caisson, all of them this same binary:
//
//	caisson ──socket──► shim ──► gofer    serves the mounted host files
//	   │                  └────► sentry   the kernel that code inside sees
//	   └──────pipes─────────────► stdin, stdout, stderr of the first process
//
// The shim (package shim) makes the other two with gVisor's own packages and
// lives as long as they do. Package sentry is gVisor's gofer and sentry. This package,
// which links neither, plans the sandbox, starts the shim, and moves bytes.
//
// Code inside runs as uid 1000 without capabilities, on a read-only root, and
// becomes the sandbox's own root only where Spec.Sudo lets it: that root has
// Docker's capabilities, and all of them are gVisor's to give. On
// the host, as root, sentry and gofer have a private uid pair, no
// capabilities outside their user namespace, empty network, mount, pid, ipc
// and uts namespaces, and gVisor's seccomp filter. As an ordinary user they
// have that user's uid, and all the rest is the same.
package gvisor

// Name is what --isolation takes.
const Name = "gvisor"
