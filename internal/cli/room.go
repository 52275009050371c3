// SPDX-License-Identifier: Apache-2.0

package cli

// room is memory that a process that serves holds and never touches: no page of it
// exists, but the collector counts it, so that garbage may grow by as much before it is
// collected. A message of MCP's leaves 32 KiB of it for each time that it is looked
// into (the library's reader has a buffer of that size), and at the usual 4 MiB every
// tenth call met a collection, on all processors.
//
// A higher percentage would do the same for a small heap, and for a large one, which
// others can make it, too much.
func room() []byte { return make([]byte, 16<<20) }
