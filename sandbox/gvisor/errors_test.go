// SPDX-License-Identifier: Apache-2.0

package gvisor

import (
	"errors"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/gvisor/protocol"
)

func TestExplain(t *testing.T) {
	for text, want := range map[string][2]string{
		"starting sandbox: fork/exec /proc/self/exe: no space left on device":                           {"no more user namespaces", "doctor"},
		"starting sandbox: write /state/run/x/config.json: no space left on device":                     {"disk is full", "CAISSON_STATE"},
		"writing the bundle: write /run/.caisson/bundle/config.json: no space left on device":           {"command line", "shorter"},
		"writing the bundle: write /run/caisson/run/x/bundle/config.json: no space left on device":      {"disk is full", "CAISSON_STATE"},
		"starting sandbox: write /run/.caisson/g/x.state: no space left on device":                      {"command line", "shorter"},
		"starting sandbox: fork/exec /proc/self/exe: operation not permitted":                           {"operation not permitted", "doctor"},
		"starting sandbox: cannot allocate memory":                                                      {"not enough memory", "--memory"},
		`restoring container "x": "Mounts" does not match across checkpoint restore for container: "y"`: {"is not what it was paused", "make another one"},
		"cannot create sandbox: cannot read client sync file: waiting for sandbox to start: EOF":        {"client sync file", "ulimit -a"},
		"something else": {"something else", ""},
	} {
		err := explain(&protocol.Event{Error: text})
		if !errors.Is(err, sandbox.ErrUnavailable) || !strings.Contains(err.Error(), want[0]) || !strings.Contains(sandbox.Hint(err), want[1]) {
			t.Errorf("%s: %v (hint: %s), want %q", text, err, sandbox.Hint(err), want)
		}
	}
}

// Of words that have gVisor's state in them the beginning is told, and all of them count.
func TestExplainIsShort(t *testing.T) {
	err := explain(&protocol.Event{Error: "restore failed: " + strings.Repeat("{Magic:1} ", 10_000) + "cannot allocate memory"})
	if len(err.Error()) > 2*maxWords || !strings.Contains(sandbox.Hint(err), "--memory") {
		t.Errorf("%d bytes, hint %q", len(err.Error()), sandbox.Hint(err))
	}
	if err := explain(&protocol.Event{Error: "x" + strings.Repeat("y", 10_000)}); len(err.Error()) > 2*maxWords {
		t.Errorf("%d bytes", len(err.Error()))
	}
}

// Memory that wants a file which is gone does not fit; where the host lacks something, it may
// later.
func TestExplainMisfits(t *testing.T) {
	for text, misfits := range map[string]bool{
		`failed to load kernel: vfs.CompleteRestore() failed: failed to walk "x": no such file or directory`:          true,
		"failed to load kernel: vfs.CompleteRestore() failed: superblock mismatch detected on restore, got {Magic:1}": true,
		"failed to load kernel: vfs.CompleteRestore() failed: open: too many open files":                              false,
		"failed to load kernel: vfs.CompleteRestore() failed: cannot allocate memory":                                 false,
		"failed to load kernel: vfs.CompleteRestore() failed: permission denied":                                      false,
		"failed to load kernel: vfs.CompleteRestore() failed: input/output error":                                     false,
		"cannot read client sync file: waiting for sandbox to start: EOF":                                             false,
	} {
		if err := explain(&protocol.Event{Error: text}); errors.Is(err, sandbox.ErrMisfit) != misfits {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// What the shim knows itself is not gVisor's doing, whatever its words are like.
func TestExplainWhatIsKnown(t *testing.T) {
	ev := &protocol.Event{Kind: protocol.Failed}
	ev.Fail(&sandbox.Error{Op: "enter cgroup x", Kind: sandbox.ErrUnsupported, Problem: "operation not permitted", Hint: "raise the limit (ulimit -i)"})
	err := explain(ev)
	if got := err.Error(); got != "start sandbox: enter cgroup x: operation not permitted" || sandbox.Hint(err) != "raise the limit (ulimit -i)" || !errors.Is(err, sandbox.ErrUnsupported) {
		t.Errorf("%v (hint: %s)", got, sandbox.Hint(err))
	}
}
