// SPDX-License-Identifier: Apache-2.0

//go:build linux

package gvisor_test

import (
	"errors"
	"io"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/guest"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/gvisor"
)

// living starts a sandbox and begins a session with its agent.
func living(t *testing.T, spec *sandbox.Spec, o guest.Options) (*guest.Client, sandbox.Instance) {
	t.Helper()
	box, err := gvisor.New(gvisor.Options{}).Start(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := box.Destroy(t.Context()); err != nil {
			t.Error(err)
		}
	})
	conn, err := box.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c, err := guest.NewClient(conn, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c, box
}

// says runs a script as a process and returns what it writes to either stream.
func says(t *testing.T, c *guest.Client, script string) string {
	t.Helper()
	env := map[string]string{"PATH": sandbox.ProgramDir + ":/usr/bin:/bin"}
	p, err := c.Start(t.Context(), guest.Command{Path: "/bin/sh", Args: []string{"-c", script}, Dir: "/", Env: env})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	var all strings.Builder
	for {
		o, err := p.Next()
		if err == io.EOF {
			return all.String()
		}
		if err != nil {
			t.Fatal(err)
		}
		all.Write(o.Data)
	}
}

// Where the spec lets it, code becomes root by name and by set-user-id programs;
// where it does not, by neither.
func TestSudo(t *testing.T) {
	const plant = "cp /usr/bin/id /tmp/id && chmod 4755 /tmp/id"
	const facts = "id -u; grep -E 'CapEff|NoNewPrivs' /proc/self/status; /tmp/id -u"

	spec := fixture(t)
	spec.Sudo, spec.RootSize = true, 100<<20
	c, _ := living(t, spec, guest.Options{User: spec.User})
	if got := says(t, c.As("root"), plant+"; id -u; grep CapEff /proc/self/status; echo x > /tmp/of-root"); got != "0\nCapEff:\t00000000a80405ff\n" {
		t.Errorf("root says %q", got)
	}
	if got, want := says(t, c, facts), "1000\nCapEff:\t0000000000000000\nNoNewPrivs:\t0\n0\n"; got != want {
		t.Errorf("the user says %q, want %q", got, want)
	}

	const can = `umask 022; mkdir /own && cd /own && sudo sh -c 'id -u; pwd; echo changed >/etc/motd; cat /etc/motd'; sudo ls -ld /root | cut -c1-10; sudo sh -c 'head -c 200000000 /dev/zero >/root/big' 2>&1 | grep -o "No space left.*"`
	if got, want := says(t, c, can), "0\n/own\nchanged\ndrwx------\nNo space left on device\n"; got != want {
		t.Errorf("by sudo: %q, want %q", got, want)
	}
	if left, err := os.ReadFile("/proc/self/fd/" + strconv.Itoa(int(spec.Root.Dir.Fd())) + "/etc/motd"); err == nil {
		t.Errorf("root inside changed the root file system that all share: %q", left)
	}

	// The same program, planted by the host's agent as root, and no user may use
	// it.
	plain := fixture(t)
	asRoot, box := living(t, plain, guest.Options{})
	if got := says(t, asRoot, plant); got != "" {
		t.Errorf("planting says %q", got)
	}
	conn, err := box.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c, err = guest.NewClient(conn, guest.Options{User: plain.User})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if got, want := says(t, c, facts), "1000\nCapEff:\t0000000000000000\nNoNewPrivs:\t1\n1000\n"; got != want {
		t.Errorf("without, the user says %q, want %q", got, want)
	}
	var r *sandbox.AgentError
	if _, err := c.As("root").Start(t.Context(), guest.Command{Path: "/bin/true"}); !errors.As(err, &r) || r.Code != "permission_denied" {
		t.Errorf("root by name: %v", err)
	}

	if _, err := gvisor.New(gvisor.Options{}).Run(t.Context(), spec, &sandbox.Exec{Argv: []string{"true"}, Dir: "/"}); !errors.Is(err, sandbox.ErrUnsupported) {
		t.Errorf("a one-shot: %v", err)
	}
}
