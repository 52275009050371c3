// SPDX-License-Identifier: Apache-2.0

// Package microvm is the levels with a kernel of the sandbox's own behind the processor's
// boundary: "microvm", QEMU's small machine, and "vm", its full one (q35).
//
//	caisson ── box of the process level ──► QEMU ──► guest kernel ──► boot ──► agent ──► the program
//	   ├── QMP, a socket ──────────────────┘                            │        │
//	   └── virtio-serial, a socket ─────────────────────────────────────┴────────┘
//
// The machine monitor is itself in a sandbox of the process level, which the driver is
// given ([Options.Box]): no capabilities, no network, of the host its programs and
// libraries, its machine's disks, kernel and sockets, all read-only, and limits for the
// whole machine. Code that breaks out of the machine is in that box. It is also what ends
// the machine with its owner.
//
// A guest's root is an image or a template, as one read-only file that machines share.
// Its first process is package guest/boot, which makes the sandbox inside; the agent and
// all above it are those of every level.
//
// KVM counts when a machine was seen to run on it. Without it only a variant that says so
// runs, "microvm:tcg": QEMU emulates the processor then, which is slow, and no boundary
// that anything should rely on.
package microvm
