// SPDX-License-Identifier: Apache-2.0

//go:build linux

package attack_test

import (
	"context"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/attack"
	"github.com/caisson-run/caisson/attack/attacktest"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
)

// wider asks for more of the network than was asked of it.
type wider struct {
	attack.Doer
	change func(*session.Call)
}

func (w wider) Do(ctx context.Context, call *session.Call, io session.IO) (*sandbox.Result, error) {
	w.change(call)
	return w.Doer.Do(ctx, call, io)
}

func secretsEverywhere(c *session.Call) {
	for i := range c.Secrets {
		c.Secrets[i].Plain = true
	}
}

func anyCredentials(c *session.Call) {
	for i := range c.Secrets {
		c.Secrets[i].Others = true
	}
}

func openLoopback(c *session.Call) {
	if len(c.Network) > 0 {
		c.Network = append(c.Network, "127.0.0.0/8:*")
	}
}

func everyPort(c *session.Call) {
	if len(c.Network) > 0 {
		c.Network = append(c.Network, "localhost:*", "127.0.0.0/8:*")
	}
}

// openHost allows what the host itself has for addresses.
func openHost(c *session.Call) {
	addresses, err := net.InterfaceAddrs()
	if err != nil || len(c.Network) == 0 {
		return
	}
	for _, a := range addresses {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil && !n.IP.IsLoopback() {
			c.Network = append(c.Network, n.IP.String()+":*")
		}
	}
}

// Rules that are too wide turn the cases red that are about them.
func TestWithWiderNetwork(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*session.Call)
		red    string
	}{
		"secrets over plain HTTP":   {secretsEverywhere, "S05"},
		"anybody's credentials":     {anyCredentials, "S06"},
		"an entry for the loopback": {openLoopback, "N02 N08 N19"},
		"every port of a host":      {everyPort, "N13 N14"},
		"an entry for the host":     {openHost, "N05"},
	} {
		t.Run(name, func(t *testing.T) {
			l := attacktest.Level{Driver: caisson.Drivers()["gvisor"], Doer: func(d attack.Doer) attack.Doer { return wider{d, c.change} }}
			wantRed(t, attacktest.Run(t, l, strings.Fields(c.red)...), c.red)
		})
	}
}

// widened are arguments of a second caisson whose rules are too wide.
func widened(args []string, allow string) []string {
	if i := slices.Index(args, "--mount"); i > 0 && slices.Contains(args, "--allow") {
		return slices.Insert(slices.Clone(args), i, "--allow", allow)
	}
	return args
}

// unbounded takes the budget out of the policy of a second caisson.
func unbounded(args []string) []string {
	i := slices.Index(args, "--policy")
	if i < 0 {
		return args
	}
	text, err := os.ReadFile(args[i+1])
	if err != nil {
		return args
	}
	var lines []string
	for line := range strings.Lines(string(text)) {
		if !strings.Contains(line, "budget:") {
			lines = append(lines, line)
		}
	}
	file := args[i+1] + ".unbounded.yaml"
	_ = os.WriteFile(file, []byte(strings.Join(lines, "")), 0o600)
	args = slices.Clone(args)
	args[i+1] = file
	return args
}

// A second caisson whose rules are too wide, whose budget is left out, that takes
// everybody for its owner, or that changes no network that lives, turns them red.
func TestWeakSecondCaisson(t *testing.T) {
	for name, c := range map[string]struct {
		change func(args []string) []string
		env    string
		red    string
	}{
		"names of an attacker allowed": {change: func(args []string) []string { return widened(args, "*.caisson-attack-evil.test") }, red: "N07"},
		"a range of a host allowed":    {change: func(args []string) []string { return widened(args, "93.184.0.0/16:*") }, red: "N12"},
		"no budget":                    {change: unbounded, red: "N18"},
		"a door that is open":          {env: openProxy, red: "N16"},
		"a network that stays":         {env: deafProxy, red: "N17"},
		"copies that draw the same":    {env: sameProxy, red: "V01"},
		"one sandbox for all keys":     {env: sharedProxy, red: "V02"},
		"memory that is not compared":  {env: trustingProxy, red: "V03"},
	} {
		t.Run(name, func(t *testing.T) {
			l := attacktest.Level{Driver: caisson.Drivers()["gvisor"], Again: func(program, state string, args ...string) *exec.Cmd {
				if c.change != nil {
					args = c.change(args)
				}
				cmd := second(program, state, args...)
				if c.env != "" && args[0] == "serve" {
					cmd.Env = append(cmd.Env, weakEnv+"="+c.env)
				}
				return cmd
			}}
			wantRed(t, attacktest.Run(t, l, c.red), c.red)
		})
	}
}

// A level whose sandboxes have the host's network turns them red, too, in a
// network of their own, which leads nowhere.
func TestWithHostsNetwork(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, for a network of its own")
	}
	if os.Getenv(ownNetwork) == "" {
		cmd := exec.Command(os.Args[0], "-test.run", "^TestWithHostsNetwork$", "-test.v")
		cmd.Env = append(os.Environ(), ownNetwork+"=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET}
		out, err := cmd.CombinedOutput()
		t.Logf("%s", out)
		if err != nil {
			t.Error(err)
		}
		return
	}
	metadataService(t) // brings the loopback up
	r := attacktest.Run(t, attacktest.Level{Driver: bare{caisson.Drivers()["gvisor"]}, Doer: func(d attack.Doer) attack.Doer { return d }}, "N02", "N05", "N06", "N09", "N10", "N11", "N13", "N14", "N15", "N19")
	for _, f := range r.Cases {
		t.Logf("%s %s: %s", f.ID, f.Verdict, f.Reason)
	}
	wantRed(t, r, "N02 N05 N06 N09 N10 N11 N13 N14 N15 N19")
}

func wantRed(t *testing.T, r *attack.Report, want string) {
	t.Helper()
	if got := attacktest.Red(r); !slices.Equal(got, strings.Fields(want)) {
		t.Errorf("red are %q, want %s", got, want)
	}
	for _, f := range r.Cases {
		if f.Verdict != attack.Pass {
			t.Logf("%s %s: %s", f.ID, f.Verdict, f.Reason)
		}
		if f.Verdict == attack.Unclear {
			t.Errorf("%s is unclear", f.ID)
		}
	}
}
