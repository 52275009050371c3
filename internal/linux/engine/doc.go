// SPDX-License-Identifier: Apache-2.0

// Package engine has the program that runs around a gVisor sandbox: its keeper,
// and gVisor's kernel and file server (sandbox/gvisor/shim). It has the program
// of a network's router, too (egress/router).
//
// Each of these processes pays for the start of all packages that its program
// links, and none of them needs the command line, the audit record or the
// policy; a router needs no more than a TCP/IP stack of gVisor. So `make build`
// builds cmd/caisson-engine and cmd/caisson-router, which have nothing else, and
// the binary carries them, packed. Each is unpacked once for each version, into
// the state directory, and executed from there by descriptor; where that cannot
// be, from memory. A program built without it (go install, a user of the
// library) is its own engine and router. Either way the code is the same.
package engine
