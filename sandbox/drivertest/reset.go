// SPDX-License-Identifier: Apache-2.0

//go:build linux

package drivertest

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/egress"
	"github.com/caisson-run/caisson/guest"
)

// reaching is a fixture that can be written down, and that reaches a port of this host where
// the level has a network, until end.
func (s *suite) reaching(t *testing.T) (w *fixture, port string, end func()) {
	t.Helper()
	if !s.caps.Network {
		return s.fixture(t, snapshots), "", func() {}
	}
	port = greeter(t)
	w, router := s.routed(t, egress.Options{}, "localhost:"+port, "127.0.0.1:"+port)
	snapshots(w.spec)
	return w, port, func() { router.Close() }
}

// speaks has a connection to the greeter and one inside. It says how the first one ends, and
// then what comes over the other.
const speaks = prelude + onNetwork + `
server = mine()
a = dial(server.getsockname()); b = server.accept()[0]
c = dial((query('localhost'), int(sys.argv[1]))); c.settimeout(None)
print(c.recv(100).decode().strip(), flush=True)
print(attempt(c.recv, 100), flush=True)
a.sendall(b'inside'); print(b.recv(100).decode(), flush=True)
`

// speakOut starts that, and returns when it has been greeted.
func (s *suite) speakOut(t *testing.T, ctx context.Context, w *fixture, c *guest.Client, port string) {
	t.Helper()
	if port == "" {
		return
	}
	x := w.exec("sh", "-c", `python3 -I -S -c "$0" "$1" > ~/heard 2>&1 &`, speaks, port)
	if exit, err := c.Run(ctx, x); err != nil || exit.Code == nil || *exit.Code != 0 {
		t.Fatalf("%+v, %v", exit, err)
	}
	s.heard(t, ctx, w, c, "host")
}

// heard waits until the program has said as many lines, and compares them.
func (s *suite) heard(t *testing.T, ctx context.Context, w *fixture, c *guest.Client, want ...string) {
	t.Helper()
	if !s.caps.Network {
		return
	}
	var got []string
	for len(got) < len(want) && ctx.Err() == nil {
		got = strings.Split(says(t, ctx, w, c, "cat ~/heard"), "\n")
		if got[0] == "" {
			got = nil
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("connections: %q, want %q", got, want)
	}
}
