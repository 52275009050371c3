// SPDX-License-Identifier: Apache-2.0

//go:build linux

package microvm_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/microvm"
	"github.com/caisson-run/caisson/sandbox/process"
)

func TestVariants(t *testing.T) {
	for _, m := range []microvm.Machine{microvm.Micro, microvm.Full} {
		d := microvm.New(microvm.Options{Machine: m, Box: process.New(process.Options{}), Kernels: t.TempDir()})
		for _, name := range []string{"qemu", "firecracker", "tcg", "kvm", ""} {
			v := d.Variant(name)
			if is := name == "tcg" || m == microvm.Micro && (name == "qemu" || name == "firecracker"); !is {
				if v != nil {
					t.Errorf("%s:%s is there", m, name)
				}
				continue
			}
			if v == nil || v.Name() != string(m)+":"+name || v.(sandbox.Varied).Variant(name) != nil {
				t.Errorf("%s:%s is %v", m, name, v)
			}
		}
	}
}

// Small machines are Firecracker's where it is here, and named in vain is an error.
func TestMonitorThatIsTaken(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "firecracker")
	if err := os.WriteFile(file, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		machine              microvm.Machine
		variant, path, named string
		engine, why          string
	}{
		"none":           {microvm.Micro, "", "/nothing", "", "QEMU", "no QEMU"},
		"in PATH":        {microvm.Micro, "", dir, "", "Firecracker", ""},
		"named":          {microvm.Micro, "", "/nothing", file, "Firecracker", ""},
		"named in vain":  {microvm.Micro, "", "/nothing", file + "-not", "Firecracker", "names no file"},
		"the other":      {microvm.Micro, "qemu", dir, file, "QEMU", "no QEMU"},
		"asked for":      {microvm.Micro, "firecracker", "/nothing", "", "Firecracker", "no Firecracker"},
		"emulated":       {microvm.Micro, "tcg", dir, file, "QEMU, emulated", "no QEMU"},
		"a full machine": {microvm.Full, "", dir, file, "QEMU", "no QEMU"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("PATH", tt.path)
			t.Setenv("CAISSON_FIRECRACKER", tt.named)
			t.Setenv("CAISSON_QEMU", "")
			var d sandbox.Driver = microvm.New(microvm.Options{Machine: tt.machine, Box: process.New(process.Options{}), Kernels: t.TempDir()})
			if tt.variant != "" {
				d = d.(sandbox.Varied).Variant(tt.variant)
			}
			caps, err := d.Probe(t.Context())
			if err != nil || caps.Engine != tt.engine || !strings.Contains(caps.Unusable, tt.why) {
				t.Errorf("%q, %q, %v", caps.Engine, caps.Unusable, err)
			}
			if limited := caps.Limits[sandbox.LimitIO].Enforcement == sandbox.Enforced; limited != strings.HasPrefix(tt.engine, "QEMU") || caps.Snapshot != limited {
				t.Errorf("%v, snapshots %v", caps.Limits[sandbox.LimitIO], caps.Snapshot)
			}
		})
	}
}
