// SPDX-License-Identifier: Apache-2.0

//go:build linux

package gvisor

import (
	"bufio"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/sandbox"
)

// undying is a process that no signal ends, and that says nothing.
type undying struct{}

func (undying) slay()       {}
func (undying) wait()       { select {} }
func (undying) how() string { return "it has not ended" }
func (undying) pid() int    { return 4242 }
func (undying) forget()     {}

// A shim that does not end keeps no caller waiting, neither in ending it nor in
// reading its messages.
func TestShimThatDoesNotEnd(t *testing.T) {
	defer func(end, kill time.Duration) { endGrace, killGrace = end, kill }(endGrace, killGrace)
	endGrace, killGrace = time.Millisecond, time.Millisecond
	for name, wait := range map[string]func(*box) error{
		"the end of a program":   func(b *box) error { b.shim.kill(); _, err := b.waitExit(&sandbox.Exec{}); return err },
		"the end of an instance": func(b *box) error { return b.close() },
	} {
		conn, theirs, err := socketPair()
		if err != nil {
			t.Fatal(err)
		}
		defer theirs.Close()
		b := &box{shim: &shimProcess{process: undying{}, conn: conn, in: json.NewDecoder(bufio.NewReader(conn)), ordered: true}}
		ended := make(chan error, 1)
		go func() { ended <- wait(b) }()
		select {
		case err := <-ended:
			if !errors.Is(err, sandbox.ErrUnended) || !strings.Contains(err.Error(), "4242") {
				t.Errorf("%s: %v", name, err)
			}
		case <-time.After(time.Minute):
			t.Fatalf("%s is waited for", name)
		}
	}
}
