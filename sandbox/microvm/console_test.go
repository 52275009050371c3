// SPDX-License-Identifier: Apache-2.0

//go:build linux

package microvm_test

import (
	"strings"
	"testing"

	"github.com/caisson-run/caisson/guest/agent"
	"github.com/caisson-run/caisson/guest/boot"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/microvm"
)

func TestConsole(t *testing.T) {
	c := microvm.NewConsole()
	for range 100_000 { // a guest that floods it
		_, _ = c.Write([]byte("a line of the guest's\r\n"))
	}
	_, _ = c.Write([]byte("\x1b[2Jred\x9bm\u202e\r\nKernel panic - not syncing: Attempted to kill init!\r\nlast"))
	if got, want := c.LastLines(3), "[2Jredm\nKernel panic - not syncing: Attempted to kill init!\nlast"; strings.ReplaceAll(got, "\u202e", "") != want {
		t.Errorf("%q, want %q", got, want)
	}
	if !c.Panicked() {
		t.Error("its panic was not seen")
	}
	select {
	case <-c.OOM():
		t.Error("a limit was heard of that was not told")
	default:
	}
	for _, piece := range []string{"\r\nx" + agent.OOMLine + "\r\n", agent.OOMLine[:5], agent.OOMLine[5:]} {
		_, _ = c.Write([]byte(piece))
	}
	_, _ = c.Write([]byte("\r\n"))
	select {
	case <-c.OOM():
	default:
		t.Error("the agent's word was not heard in two pieces")
	}
}

// The guest tells of a kernel without drivers, which the user has to mend.
func TestNoPortHintsAtModules(t *testing.T) {
	for said, want := range map[string]bool{"caisson: the machine has no port " + boot.Port + ": its kernel has no driver\n": true, "Kernel panic\n": false} {
		err := microvm.Failed(said)
		if got := strings.Contains(sandbox.Hint(err), "--modules DIR"); got != want || !strings.Contains(err.Error(), strings.TrimSpace(said)) {
			t.Errorf("%q: %v, hint %q", said, err, sandbox.Hint(err))
		}
	}
}
