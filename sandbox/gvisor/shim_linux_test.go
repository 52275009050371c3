// SPDX-License-Identifier: Apache-2.0

package gvisor

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/gvisor/wire"
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
		said *wire.Event
		want string
	}{
		"why":     {&wire.Event{Kind: wire.Failed, Error: "enough", Advice: &wire.Advice{Hint: "take less"}}, "start sandbox: enough"},
		"nothing": {nil, "run sandbox: its keeper process ended early (exit status 1)"},
		"another": {&wire.Event{Kind: wire.Started}, "run sandbox: its keeper process ended early (exit status 1)"},
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
			b := &box{plan: &plan{}, spec: &sandbox.Spec{}, order: &wire.Order{}, berth: &berth{shim: newShimProcess(ended{}, conn)}}
			if err := b.give(nil, nil, nil); !errors.Is(err, sandbox.ErrUnavailable) || err.Error() != c.want {
				t.Errorf("%v, want %s", err, c.want)
			}
		})
	}
}
