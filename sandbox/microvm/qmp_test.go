// SPDX-License-Identifier: Apache-2.0

//go:build linux

package microvm_test

import (
	"bufio"
	"context"
	"errors"
	"net"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/caisson-run/caisson/sandbox/microvm"
)

const greeting = `{"QMP": {"version": {"qemu": {"major": 7}}, "capabilities": []}}` + "\n"

// A monitor that says what none may say ends the conversation: it may be in the hands of
// code that broke out of its machine.
func TestMonitor(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	for name, tt := range map[string]struct{ first, then, fails string }{ // what it says to qmp_capabilities, and to the next command
		"as it should":    {`{"return": {}, "id": 1}`, `{"event": "STOP"}` + "\n" + `{"return": {"status": "running"}, "id": 2}`, ""},
		"an error":        {`{"return": {}, "id": 1}`, `{"error": {"class": "GenericError", "desc": "no\u001b[2J"}, "id": 2}`, `stop: QEMU says "no\x1b[2J"`},
		"nonsense":        {`{"return": {}, "id": 1}`, `]`, "has ended"},
		"too long":        {`{"return": {}, "id": 1}`, strings.Repeat("x", 2<<20), "has ended"},
		"an older answer": {`{"return": {}, "id": 1}`, `{"error": {"desc": "late"}, "id": 1}` + "\n" + `{"return": {}, "id": 2}`, ""},
		"a flood":         {`{"return": {}, "id": 1}`, strings.Repeat("{}\n", 10_000), "has ended"},
		"not at all":      {"", "", "has ended"},
		"without a word":  {`{"return": {}, "id": 1}`, "", "has ended"},
	} {
		t.Run(name, func(t *testing.T) {
			ours, theirs := net.Pipe()
			defer ours.Close()
			go func() {
				defer theirs.Close()
				lines := bufio.NewScanner(theirs)
				_, _ = theirs.Write([]byte(greeting))
				for _, say := range []string{tt.first, tt.then} {
					if !lines.Scan() || say == "" {
						return
					}
					if _, err := theirs.Write([]byte(say + "\n")); err != nil {
						return
					}
				}
				lines.Scan()
			}()
			m, err := microvm.NewQMP(t.Context(), ours)
			if err == nil {
				err = m.Call(t.Context(), "stop")
			}
			if (err == nil) != (tt.fails == "") || err != nil && !strings.Contains(err.Error(), tt.fails) {
				t.Errorf("%v, want %q", err, tt.fails)
			}
		})
	}
}

func TestMonitorIsSilent(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	ours, theirs := net.Pipe()
	defer theirs.Close()
	go func() {
		lines := bufio.NewScanner(theirs)
		_, _ = theirs.Write([]byte(greeting))
		for lines.Scan() {
		}
	}()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := microvm.NewQMP(ctx, ours); err == nil {
		t.Error("it was not given up")
	}
	ours.Close()
}

// A monitor that has ended is gone, whether that is seen where it is spoken to or where it
// is listened to: what was to be loaded into it is judged by that.
func TestMonitorThatHasEnded(t *testing.T) {
	ours, theirs := socketPair(t)
	defer ours.Close()
	greeted := make(chan struct{})
	go func() {
		defer close(greeted)
		_, _ = theirs.Write([]byte(greeting))
		_, _ = theirs.Read(make([]byte, 1<<10))
		_, _ = theirs.Write([]byte(`{"return": {}, "id": 1}` + "\n"))
	}()
	m, err := microvm.NewQMP(t.Context(), ours)
	if err != nil {
		t.Fatal(err)
	}
	<-greeted
	theirs.Close()
	for range 2 {
		if err := m.Call(t.Context(), "query-migrate"); !errors.Is(err, microvm.ErrMonitorGone) {
			t.Errorf("%v", err)
		}
	}
}
