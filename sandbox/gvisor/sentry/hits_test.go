// SPDX-License-Identifier: Apache-2.0

//go:build linux

package sentry

import (
	"encoding/binary"
	"slices"
	"testing"

	"gvisor.dev/gvisor/pkg/sentry/syscalls/linux"
)

// The calls that are looked at are gVisor's.
func TestHitCalls(t *testing.T) {
	for _, name := range slices.Concat(forkCalls, spaceCalls, []string{"execve", "execveat"}) {
		if _, err := linux.AMD64.LookupNo(name); err != nil {
			t.Errorf("gVisor knows no %s any more: %v", name, err)
		}
	}
}

func TestReadHits(t *testing.T) {
	b := make([]byte, HitsSize)
	binary.NativeEndian.PutUint64(b[8:], 1_500_000_000)
	binary.NativeEndian.PutUint64(b[24:], 1<<63) // below 0
	if hits := ReadHits(b); len(hits) != 1 || hits["disk"].UnixNano() != 1_500_000_000 {
		t.Errorf("%v", hits)
	}
	if hits := ReadHits(b[:8]); len(hits) != 0 {
		t.Errorf("a short file: %v", hits)
	}
}
