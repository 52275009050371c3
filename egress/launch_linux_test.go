// SPDX-License-Identifier: Apache-2.0

package egress

import (
	"syscall"
	"testing"

	"github.com/caisson-run/caisson/egress/wire"
	"github.com/caisson-run/caisson/sandbox"
)

// A router that cannot be had ahead of the first packet is started by that.
func TestForeseenInVain(t *testing.T) {
	r, err := Start(Options{Wire: sandbox.WirePackets, Rules: wire.Rules{Allow: []wire.Entry{{Text: "example.com"}}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Started(); err != nil {
		t.Fatal(err)
	}
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 1, Max: files.Max}); err != nil {
		t.Fatal(err)
	}
	r.ahead()
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		t.Fatal(err)
	}
	if r.runs {
		t.Fatal("it was started")
	}
	p := make([]byte, 29) // of UDP to 192.0.2.1
	p[0], p[3], p[8], p[9] = 0x45, 29, 64, 17
	copy(p[12:], Guest.AsSlice())
	copy(p[16:], []byte{192, 0, 2, 1})
	p[21], p[23], p[25] = 9, 53, 9
	if _, err := r.NIC().Write(p); err != nil {
		t.Fatal(err)
	}
	if report := r.Close(); report.Incomplete || report.Totals.Refused != 1 || r.PID() == 0 {
		t.Errorf("process %d, %+v", r.PID(), report)
	}
}
