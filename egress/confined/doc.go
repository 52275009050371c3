// SPDX-License-Identifier: Apache-2.0

// Package confined is the router as a process of its own, which can do what a
// router has to and nothing else.
//
// It reads packets that hostile code sends, and it has the host's network. So
// it is nobody on the host (a private uid where caisson is root), is started
// without a descriptor but the wire and the socket to its owner, can start no
// process, write no file and signal nobody, and reads names of hosts only
// (/etc). It outlives nobody: when the socket to its owner closes, it ends, and
// when it ends, nobody reads the sandbox's wire any more.
package confined
