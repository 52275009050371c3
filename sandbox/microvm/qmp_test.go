// SPDX-License-Identifier: Apache-2.0

//go:build linux

package microvm_test

import (
	"bufio"
	"context"
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
	for name, tt := range map[string]struct {
		first, then string // what it says to qmp_capabilities, and to the next command
		want, fails string
	}{
		"as it should":   {`{"return": {}}`, `{"event": "STOP"}` + "\n" + `{"return": {"status": "running"}}`, `{"status": "running"}`, ""},
		"an error":       {`{"return": {}}`, `{"error": {"class": "GenericError", "desc": "no\u001b[2J"}}`, "", `query-status: QEMU says "no\x1b[2J"`},
		"nonsense":       {`{"return": {}}`, `]`, "", "has ended"},
		"too long":       {`{"return": {}}`, strings.Repeat("x", 2<<20), "", "has ended"},
		"two answers":    {`{"return": {}}` + "\n" + `{"return": {}}` + "\n" + `{"return": {}}` + "\n" + `{"return": {}}`, "", "", ""},
		"not at all":     {"", "", "", "has ended"},
		"without a word": {`{"return": {}}`, "", "", "has ended"},
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
			m, err := microvm.NewMonitor(t.Context(), ours)
			got := ""
			if err == nil {
				got, err = m.Call(t.Context(), "query-status")
			}
			if name == "two answers" { // an answer without a question ends it, now or later
				return
			}
			if got != tt.want || (err == nil) != (tt.fails == "") || err != nil && !strings.Contains(err.Error(), tt.fails) {
				t.Errorf("%q, %v, want %q, %q", got, err, tt.want, tt.fails)
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
	if _, err := microvm.NewMonitor(ctx, ours); err == nil {
		t.Error("it was not given up")
	}
}
