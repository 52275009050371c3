// SPDX-License-Identifier: Apache-2.0

//go:build linux

package microvm_test

import (
	"context"
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

// A kernel that was imported before its driver of vsock was is good for QEMU alone, and it is
// said how to mend that.
func TestKernelWithoutVsock(t *testing.T) {
	needQEMU(t)
	kernels := t.TempDir()
	digest := strings.Repeat("a", 64)
	if err := os.Mkdir(filepath.Join(kernels, digest), 0o755); err != nil {
		t.Fatal(err)
	}
	told := `{"digest": "` + digest + `", "version": "6.1", "modules": ["virtio_blk"], "imported": "2026-01-01T00:00:00Z"}`
	if err := os.WriteFile(filepath.Join(kernels, digest, "kernel.json"), []byte(told), 0o644); err != nil {
		t.Fatal(err)
	}
	newFirecracker(t) // names it
	for _, firecracker := range []bool{true, false} {
		d := microvm.NewEither(microvm.Options{Machine: microvm.Micro, Box: process.New(process.Options{TAP: true}), Kernels: kernels}, 0, firecracker)
		caps, err := d.Probe(t.Context())
		if err != nil || strings.Contains(caps.Unusable, "without vsock") != firecracker || firecracker && !strings.Contains(caps.Remedy, "kernel import") {
			t.Errorf("%s: %q, %q, %v", caps.Engine, caps.Unusable, caps.Remedy, err)
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
			whole := strings.Contains(caps.Limits[sandbox.LimitIO].Detail, "together") && !strings.Contains(caps.Limits[sandbox.LimitIO].Detail, "part")
			if caps.Limits[sandbox.LimitIO].Enforcement != sandbox.Enforced || whole != strings.HasPrefix(tt.engine, "QEMU") || !caps.Snapshot {
				t.Errorf("%v, snapshots %v", caps.Limits[sandbox.LimitIO], caps.Snapshot)
			}
		})
	}
}

// shareless is a box on a host that holds no share of processors.
type shareless struct{ microvm.Box }

func (shareless) Probe(context.Context) (sandbox.Capabilities, error) {
	return sandbox.Capabilities{Limits: map[sandbox.LimitName]sandbox.Clause{sandbox.LimitCPUs: {Enforcement: sandbox.Off, Detail: "no groups"}}}, nil
}

// A share of processors is the box's to hold. Where it cannot, none is promised.
func TestShareOfProcessors(t *testing.T) {
	for _, d := range []sandbox.Driver{
		microvm.New(microvm.Options{Machine: microvm.Micro, Box: shareless{}, Kernels: t.TempDir()}),
		microvm.New(microvm.Options{Machine: microvm.Full, Box: shareless{}, Kernels: t.TempDir(), Emulated: true}),
	} {
		caps, err := d.Probe(t.Context())
		if c := caps.Limits[sandbox.LimitCPUs]; err != nil || c.Enforcement != sandbox.Emulated || !strings.Contains(c.Detail, "whole ones: no groups") {
			t.Errorf("%s: %+v, %v", d.Name(), c, err)
		}
	}
}
