// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"io"
	"os"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/guest/wire"
)

// Programs begin with every signal at its default and none blocked, whichever call
// makes their process.
func TestSignalsOfEitherClone(t *testing.T) {
	a := New(Options{})
	stop, reaped := make(chan struct{}), make(chan struct{})
	go func() { defer close(reaped); a.table.reap(stop) }()
	defer func() { close(stop); <-reaped }()
	had := oldClone.Load()
	defer oldClone.Store(had)
	for _, old := range []bool{false, true} {
		oldClone.Store(old)
		p, out, err := a.spawn(&wire.StartRequest{
			Argv: []string{"cat", "/proc/self/status"}, Env: []string{"PATH=/usr/bin:/bin"}, Dir: "/",
			UID: uint32(os.Geteuid()), GID: uint32(os.Getegid()),
		})
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(out.stdout)
		out.close()
		<-p.done
		for _, name := range []string{"SigBlk", "SigIgn", "SigCgt"} {
			if want := name + ":\t" + strings.Repeat("0", 16) + "\n"; err != nil || !strings.Contains(string(got), want) {
				t.Errorf("old is %t: not %s%s, %v", old, want, got, err)
			}
		}
		if !old && oldClone.Load() {
			t.Log("this kernel has no clone3 that clears signals")
		}
	}
}
