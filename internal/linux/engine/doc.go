// SPDX-License-Identifier: Apache-2.0

// Package engine has the program that runs around a gVisor sandbox: its keeper,
// gVisor's kernel and file server, and the router of its network
// (sandbox/gvisor/halves).
//
// Each of these processes pays for the start of all packages that its program
// links, and none of them needs the command line, the audit record or the
// policy. So `make build` builds cmd/caisson-engine, which has nothing else,
// and the binary carries it, packed. It is unpacked once for each version, into
// the state directory, and executed from there by descriptor; where that cannot
// be, from memory. A program built without it (go install, a user of the
// library) is its own engine. Either way the code is the same.
package engine
