// SPDX-License-Identifier: Apache-2.0

package gvisor

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/gvisor/protocol"
)

// ended is a shim's process that is gone.
type ended struct{}

func (ended) slay()       {}
func (ended) wait()       {}
func (ended) how() string { return "exit status 1" }
func (ended) pid() int    { return 0 }
func (ended) forget()     {}

// A shim that ends before it gets its order has said why; that is what people are told.
func TestLastWord(t *testing.T) {
	for name, c := range map[string]struct {
		said *protocol.Event
		want string
	}{
		"why":     {&protocol.Event{Kind: protocol.Failed, Error: "enough", Advice: &protocol.Advice{Hint: "take less"}}, "start sandbox: enough"},
		"nothing": {nil, "run sandbox: its keeper process ended early (exit status 1)"},
		"another": {&protocol.Event{Kind: protocol.Started}, "run sandbox: its keeper process ended early (exit status 1)"},
	} {
		t.Run(name, func(t *testing.T) {
			conn, theirs, err := socketPair()
			if err != nil {
				t.Fatal(err)
			}
			if c.said != nil {
				err = json.NewEncoder(theirs).Encode(c.said)
			}
			if err = errors.Join(err, theirs.Close()); err != nil {
				t.Fatal(err)
			}
			b := &box{plan: &plan{}, spec: &sandbox.Spec{}, order: &protocol.Order{}, shim: newShimProcess(ended{}, conn)}
			if err := b.give(nil, nil, nil); !errors.Is(err, sandbox.ErrUnavailable) || err.Error() != c.want {
				t.Errorf("%v, want %s", err, c.want)
			}
		})
	}
}

// Files have their numbers in what is executed: under a low limit there is none of that.
func TestUnstarted(t *testing.T) {
	for err, want := range map[error]string{syscall.EPERM: "caisson doctor", syscall.EBADF: "ulimit -n", syscall.EMFILE: "ulimit -n"} {
		e := unstarted(&os.PathError{Op: "fork/exec", Path: "/proc/self/fd/255", Err: err})
		if !errors.Is(e, sandbox.ErrUnavailable) || !strings.Contains(sandbox.Hint(e), want) {
			t.Errorf("%v (hint: %s), want %s", e, sandbox.Hint(e), want)
		}
	}
}

// A shim that can make nothing of its order, whose owner does not hear that any more,
// takes away what the owner would have.
func TestShimOfDeadOwner(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	s, err := startShim(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	err = errors.Join(
		protocol.Send(s.conn, &protocol.Order{StateDir: dir, Spec: []byte("none")}, []*os.File{null, null, null, null}),
		s.conn.Close(), // long before it is able to read
	)
	if err != nil {
		t.Fatal(err)
	}
	if s.wait(); s.how() != "exit status 1" {
		t.Errorf("it ended with %s, want exit status 1", s.how())
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its directory is left: %v", err)
	}
}
