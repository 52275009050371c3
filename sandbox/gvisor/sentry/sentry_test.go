// SPDX-License-Identifier: Apache-2.0

//go:build linux

package sentry

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	"gvisor.dev/gvisor/pkg/log"
	"gvisor.dev/gvisor/pkg/seccomp"
	"gvisor.dev/gvisor/pkg/seccomp/precompiledseccomp"
	"gvisor.dev/gvisor/runsc/boot/filter"
	"gvisor.dev/gvisor/runsc/boot/filter/config"
	goferfilter "gvisor.dev/gvisor/runsc/fsgofer/filter"
	goferconfig "gvisor.dev/gvisor/runsc/fsgofer/filter/config"
)

// TestKernelFilter holds the generated filter against what this version of
// gVisor would compile itself: instruction by instruction, and under the name
// by which gVisor will look for it. Red means: go generate.
func TestKernelFilter(t *testing.T) {
	opt := kernelOptions()
	p := only(t, kernelFilters(), opt.ConfigKey())
	opt.ControllerFD = 17
	allow, deny := config.Rules(opt)
	sameFilter(t, p, opt.Vars(), &seccomp.Program{
		RuleSets: []seccomp.RuleSet{{Rules: deny}, {Rules: allow, Action: seccomp.Allow}},
		Options:  config.SeccompOptions(opt),
	})
}

// TestGoferFilter does the same for the file server's.
func TestGoferFilter(t *testing.T) {
	opt := goferOptions()
	p := only(t, goferFilters(), opt.ConfigKey())
	allow, deny := goferconfig.Rules(opt)
	sameFilter(t, p, opt.Vars(), &seccomp.Program{
		RuleSets: []seccomp.RuleSet{{Rules: deny}, {Rules: allow, Action: seccomp.Allow}},
	})
}

func only(t *testing.T, programs []precompiledseccomp.Program, name string) precompiledseccomp.Program {
	t.Helper()
	if len(programs) != 1 {
		t.Fatalf("%d filters were generated for this architecture, want one; gVisor will compile it at every start", len(programs))
	}
	if programs[0].Name != name {
		t.Fatalf("the filter is named\n%s\ngVisor will look for\n%s", programs[0].Name, name)
	}
	return programs[0]
}

func sameFilter(t *testing.T, p precompiledseccomp.Program, vars precompiledseccomp.Values, program *seccomp.Program) {
	t.Helper()
	got, err := p.RenderInstructions(vars)
	if err != nil {
		t.Fatal(err)
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
	args, level := os.Args, log.Log().Level
	t.Cleanup(func() { os.Args = args; log.SetLevel(level) })
	os.Args = []string{"runsc-gofer", "gofer"}
	adapt()
	if _, ok := goferfilter.GetPrecompiled(goferFilters()[0].Name); !ok {
		t.Errorf("gVisor does not find the gofer's filter; it has %v", goferfilter.ListPrecompiled())
	}
	os.Args = []string{"runsc-sandbox", "boot", specFlag(t, `{}`)}
	adapt()
	if _, ok := filter.GetPrecompiled(kernelFilters()[0].Name); !ok {
		t.Errorf("gVisor does not find the kernel's filter; it has %v", filter.ListPrecompiled())
	}
	before := len(tmpfsOptions)
	adapt()
	if len(tmpfsOptions) != before || before < 5 {
		t.Errorf("tmpfs options are %v", tmpfsOptions)
	}
	if log.IsLogging(log.Info) || !log.IsLogging(log.Warning) {
		t.Errorf("gVisor's log has level %v, want warnings only", log.Log().Level)
	}
}

// A developer who debugs gVisor wants all that it has to say.
func TestDebugLogIsWhole(t *testing.T) {
	level := log.Log().Level
	t.Cleanup(func() { log.SetLevel(level) })
	log.SetLevel(log.Info)
	if skipLogging([]string{"runsc-sandbox", "--debug=true", "boot"}); !log.IsLogging(log.Info) {
		t.Error("gVisor's log is cut although --debug=true asks for it")
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

// specFlag hands over a spec as gVisor does.
func specFlag(t *testing.T, spec string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "config.json")
	if err := os.WriteFile(name, []byte(spec), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return "--spec-fd=" + strconv.Itoa(int(f.Fd()))
}

func TestShowMemory(t *testing.T) {
	args := []string{"runsc-sandbox", "boot", specFlag(t, `{"annotations":{"`+MemoryAnnotation+`":"1048576"}}`), "--total-memory", "99", "--other"}
	said, err := annotations(args)
	if err != nil || said[MemoryAnnotation] != "1048576" {
		t.Errorf("annotations %q, %v", said, err)
	}
	showMemory(args, 1<<20)
	if args[4] != "1048576" || args[5] != "--other" {
		t.Errorf("arguments %q", args)
	}
	for _, bad := range [][]string{{"boot"}, {"--spec-fd=-1"}, {"--spec-fd=x"}, {"--spec-fd"}} {
		if said, err := annotations(bad); err == nil {
			t.Errorf("annotations of %q: %q", bad, said)
		}
	}
}
