// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"os"
	"strings"
	"testing"
)

// What is risky of root is so of all that may become it.
func TestSudoIsRisky(t *testing.T) {
	p := policyOf(t, "", "user: sudoer\nrisk: {high: [call.root], on_high: deny}")
	for name, c := range map[string]struct {
		call func(*Call)
		want Decision
	}{
		"the user":                        {nil, Allow},
		"root":                            {root, Deny},
		"the user of a sandbox with sudo": {together(stranger, sudo), Deny},
	} {
		if v := p.Decide(command(c.call)); v.Decision != c.want {
			t.Errorf("%s: %v %s", name, v.Decision, v.Reason)
		}
	}
}

// The file that docs/e2b.md has people copy is the preset, and gives what it says: no
// root and no variable unasked, the internet and nothing private.
func TestE2BPreset(t *testing.T) {
	src, err := Preset("e2b")
	if err != nil {
		t.Fatal(err)
	}
	if docs, err := os.ReadFile("../docs/e2b.md"); err != nil || !strings.Contains(string(docs), "\n```yaml\n"+string(src)+"```\n") {
		t.Errorf("docs/e2b.md has another file: %v", err)
	}
	lookup := func(string) (string, bool) { return "of the host", true }
	_, lines, _ := strings.Cut(string(src), "version: 1\n")
	p := policyOf(t, "", lines)
	for name, c := range map[string]struct {
		call func(*Call)
		want string
	}{
		"unasked":     {func(*Call) {}, "user [] internet"},
		"root":        {root, "root [] internet"},
		"a variable":  {wantEnv("X", "y"), "user [X] internet"},
		"an address":  {func(c *Call) { c.Network = []string{"1.1.1.1/32:*"} }, "user [] public:1.1.1.1/32:*"},
		"this host":   {func(c *Call) { c.Network = []string{"host.caisson.internal:80"} }, "refused"},
		"another's":   {func(c *Call) { c.Network = []string{"10.0.0.1:*"} }, "refused"},
		"credentials": {func(c *Call) { c.Network = []string{"169.254.169.254:80"} }, "refused"},
		"a file":      {func(c *Call) { c.Mounts = []MountWish{{Source: "/etc"}} }, "refused"},
		"a level":     {func(c *Call) { c.Isolation = "process" }, "refused"},
	} {
		v := p.Decide(command(together(c.call, func(c *Call) { c.Operator, c.Lookup = c.Mounts != nil, lookup })))
		got := "refused"
		if v.Decision == Allow {
			who := map[bool]string{true: "root", false: "user"}[v.Plan.Root]
			var names []string
			for name := range v.Plan.Env {
				names = append(names, name)
			}
			got = who + " [" + strings.Join(names, " ") + "] " + strings.Join(v.Plan.Network.Hosts(), " ")
			if d := v.Plan.Network.Denied(); len(d) != 1 || d[0] != "internet:25" {
				t.Errorf("%s: denied is %q", name, d)
			}
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s (%s)", name, got, c.want, v.Reason)
		}
	}
}
