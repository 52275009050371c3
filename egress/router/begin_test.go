// SPDX-License-Identifier: Apache-2.0

//go:build linux

package router

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/egress/wire"
)

// pair is two ends of a socket pair.
func pair(t *testing.T, kind int) (ours, theirs *os.File) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs = os.NewFile(uintptr(fds[0]), "ours"), os.NewFile(uintptr(fds[1]), "theirs")
	t.Cleanup(func() { ours.Close(); theirs.Close() })
	return ours, theirs
}

// TestBegin: a router reads no packet before its owner says so. Its owner takes
// one that was not told for one that nothing went through.
func TestBegin(t *testing.T) {
	for _, tc := range []struct {
		say    []wire.Command
		unread bool
		last   wire.EventKind
	}{
		{[]wire.Command{{Kind: wire.End}}, true, wire.Ready},
		{[]wire.Command{{Kind: wire.Change, Rules: &wire.Rules{}}}, true, wire.Failed},
		{nil, true, wire.Ready},
		{[]wire.Command{{Kind: wire.Begin}, {Kind: wire.End}}, false, wire.Done},
	} {
		owner, theirs := pair(t, unix.SOCK_STREAM)
		nic, far := pair(t, unix.SOCK_SEQPACKET)
		exe, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		cmd := &exec.Cmd{Path: exe, Args: []string{wire.Argv0}, ExtraFiles: []*os.File{theirs, far}, Stderr: os.Stderr}
		if _, err := nic.Write(make([]byte, 20)); err != nil { // nothing that is taken for a packet
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		theirs.Close()
		to, from := json.NewEncoder(owner), json.NewDecoder(bufio.NewReader(owner))
		order := wire.Order{Guest: "198.18.0.2", Gateway: "198.18.0.1", MTU: 1500}
		if os.Geteuid() == 0 {
			order.UID = 0x70001234
		}
		var e wire.Event
		if err := to.Encode(order); err != nil {
			t.Fatal(err)
		}
		if err := from.Decode(&e); err != nil || e.Kind != wire.Ready {
			t.Fatalf("%+v, %v", e, err)
		}
		for i, c := range tc.say {
			if err := to.Encode(c); err != nil {
				t.Fatal(err)
			}
			if c.Kind == wire.Begin && i+1 < len(tc.say) {
				for queued(t, far) > 0 { // it reads now
					runtime.Gosched()
				}
			}
		}
		if len(tc.say) == 0 {
			if err := unix.Shutdown(int(owner.Fd()), unix.SHUT_WR); err != nil {
				t.Fatal(err)
			}
		}
		for from.More() {
			if err := from.Decode(&e); err != nil {
				t.Fatal(err)
			}
		}
		_ = cmd.Wait()
		if n := queued(t, far); n > 0 != tc.unread || e.Kind != tc.last {
			t.Errorf("%+v: %d bytes are unread, and the last event is %s", tc.say, n, e.Kind)
		}
	}
}

// queued is how many bytes a socket holds that were not read.
func queued(t *testing.T, f *os.File) int {
	t.Helper()
	n, err := unix.IoctlGetInt(int(f.Fd()), unix.SIOCINQ)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
