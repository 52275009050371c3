// SPDX-License-Identifier: Apache-2.0

//go:build linux

package sentry

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	"gvisor.dev/gvisor/pkg/seccomp"
	"gvisor.dev/gvisor/runsc/boot/filter"
	"gvisor.dev/gvisor/runsc/boot/filter/config"

	"github.com/caisson-run/caisson/sandbox/gvisor/sentry/filterkey"
)

// TestPrecompiledFilter holds the generated filter against what this version
// of gVisor would compile itself: instruction by instruction, and under the
// name by which gVisor will look for it. Red means: go generate.
func TestPrecompiledFilter(t *testing.T) {
	programs := precompiled()
	if len(programs) == 0 {
		t.Fatal("no filter was generated for this architecture; gVisor will compile it at every start")
	}
	opt := filterkey.Options()
	p := programs[0]
	if p.Name != opt.ConfigKey() {
		t.Fatalf("the filter is named\n%s\ngVisor will look for\n%s", p.Name, opt.ConfigKey())
	}
	opt.ControllerFD = 17
	got, err := p.RenderInstructions(opt.Vars())
	if err != nil {
		t.Fatal(err)
	}
	allow, deny := config.Rules(opt)
	program := seccomp.Program{
		RuleSets: []seccomp.RuleSet{{Rules: deny}, {Rules: allow, Action: seccomp.Allow}},
		Options:  config.SeccompOptions(opt),
	}
	want, _, err := program.Build()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the generated filter is not gVisor's (-gVisor +generated):\n%s", diff)
	}
}

// TestAdaptReachesGVisor makes sure that the variables behind go:linkname are
// the ones that gVisor reads.
func TestAdaptReachesGVisor(t *testing.T) {
	args := os.Args
	os.Args = []string{"runsc-sandbox", "boot"}
	t.Cleanup(func() { os.Args = args })
	adapt()
	name := precompiled()[0].Name
	if _, ok := filter.GetPrecompiled(name); !ok {
		t.Errorf("gVisor does not find the filter; it has %v", filter.ListPrecompiled())
	}
	before := len(tmpfsOptions)
	adapt()
	if len(tmpfsOptions) != before || before < 5 {
		t.Errorf("tmpfs options are %v", tmpfsOptions)
	}
}

func TestWanted(t *testing.T) {
	for _, tc := range []struct {
		argv []string
		want bool
	}{
		{[]string{"runsc-sandbox", "--root=/x", "boot"}, true},
		{[]string{"runsc-gofer", "gofer"}, true},
		{[]string{"/proc/self/exe", "umount", "--sync-fd=3", "/proc"}, true},
		{[]string{"/proc/self/exe", "run", "--", "true"}, false},
		{[]string{"caisson", "boot"}, false},
		{[]string{"caisson"}, false},
		{nil, false},
	} {
		if got := Wanted(tc.argv); got != tc.want {
			t.Errorf("Wanted(%q) = %v", tc.argv, got)
		}
	}
}

func TestShowMemory(t *testing.T) {
	spec := filepath.Join(t.TempDir(), "config.json")
	if err := os.WriteFile(spec, []byte(`{"annotations":{"`+MemoryAnnotation+`":"1048576"}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(spec)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	args := []string{"runsc-sandbox", "boot", "--spec-fd=" + strconv.Itoa(int(f.Fd())), "--total-memory", "99", "--other"}
	n := memoryFromSpec(args)
	showMemory(args, n)
	if n != 1<<20 || args[4] != "1048576" || args[5] != "--other" {
		t.Errorf("memory %d, arguments %q", n, args)
	}
	for _, bad := range [][]string{{"boot"}, {"--spec-fd=-1"}, {"--spec-fd=x"}, {"--spec-fd"}} {
		if n := memoryFromSpec(bad); n != 0 {
			t.Errorf("memoryFromSpec(%q) = %d", bad, n)
		}
	}
}
