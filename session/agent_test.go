// SPDX-License-Identifier: Apache-2.0

package session

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caisson-run/caisson/guest"
	"github.com/caisson-run/caisson/sandbox"
)

// endingBox is a sandbox whose level says after a while that a limit has ended it.
type endingBox struct {
	sandbox.Instance
	ended chan struct{}
}

func (b *endingBox) Ended() <-chan struct{} { return b.ended }

func (b *endingBox) Limit() sandbox.LimitName { return sandbox.LimitMemory }

// The level's word on what ended a program counts, although the agent's comes first;
// where the level says nothing nobody waits for it for long.
func TestAwaitEnd(t *testing.T) {
	lost, code := sandbox.Errorf(sandbox.ErrUnavailable, "exec", "the guest agent did not answer"), 3
	for name, c := range map[string]struct {
		exit  guest.Exit
		err   error
		after time.Duration // when the level says it
		want  sandbox.LimitName
	}{
		"the agent is lost":             {guest.Exit{}, lost, time.Second, sandbox.LimitMemory},
		"the agent says SIGKILL":        {guest.Exit{Signal: "SIGKILL"}, nil, 100 * time.Millisecond, sandbox.LimitMemory},
		"the level was first":           {guest.Exit{Code: &code}, nil, 0, sandbox.LimitMemory},
		"lost, and the sandbox lives":   {guest.Exit{}, lost, time.Hour, ""},
		"killed, and the sandbox lives": {guest.Exit{Signal: "SIGKILL"}, nil, time.Hour, ""},
		"it ended by itself":            {guest.Exit{Code: &code}, nil, time.Second, ""},
		"it could not be started":       {guest.Exit{}, errors.New("no program"), time.Second, ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			box, began := &endingBox{ended: make(chan struct{})}, time.Now()
			if c.after == 0 {
				close(box.ended)
			} else {
				time.AfterFunc(c.after, func() { close(box.ended) })
			}
			res := &sandbox.Result{}
			over := awaitEnd(t.Context(), box, c.exit, c.err)
			err := ended(t.Context(), box, res, c.exit, c.err)
			if res.Resource != c.want || over != (c.want != "") || c.want != "" && (err != nil || res.ExitCode != nil) {
				t.Errorf("%s: over %v, %+v, %v", name, over, res, err)
			}
			if took := time.Since(began); took > lostMoment || c.exit.Code != nil && took > 0 {
				t.Errorf("%s: waited for %s", name, took)
			}
		})
	}
}
