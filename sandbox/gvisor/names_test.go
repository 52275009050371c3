// SPDX-License-Identifier: Apache-2.0

//go:build linux

package gvisor_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/gvisor"
)

// A hosts file that is too large stays as it is, and the sandbox has its name.
func TestLargeHosts(t *testing.T) {
	spec := fixture(t)
	for name, text := range map[string]string{"hostname": "root\n", "hosts": "first\n" + strings.Repeat("127.0.1.1 root\n", 1<<17)} {
		if err := os.WriteFile(filepath.Join(spec.Root.Dir.Name(), "etc", name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	spec.Hostname, spec.MachineID = "sandbox-x", strings.Repeat("1", 32)
	var out bytes.Buffer
	res, err := gvisor.New(gvisor.Options{}).Run(t.Context(), spec, &sandbox.Exec{Dir: "/", Env: []string{"PATH=/bin"}, Stdout: &out,
		Argv: []string{"sh", "-c", "uname -n; cat /etc/hostname; head -n 1 /etc/hosts"}})
	if err != nil {
		t.Fatal(err)
	}
	if want := "sandbox-x\nsandbox-x\nfirst\n"; out.String() != want {
		t.Errorf("%q, want %q; %+v", out.String(), want, res)
	}
}
