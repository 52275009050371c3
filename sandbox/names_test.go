// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"slices"
	"testing"
)

func TestNameFiles(t *testing.T) {
	all := []string{"/etc/hostname", "/etc/hosts", "/etc/machine-id", "/var/lib/dbus/machine-id"}
	for _, tt := range []struct {
		spec Spec
		want []string
	}{
		{Spec{Hostname: "h"}, nil},
		{Spec{MachineID: "m"}, all},
		{Spec{MachineID: "m", Mounts: []Mount{{Target: "/etc/hosts"}, {Target: "/var", Dir: true}}}, []string{"/etc/hostname", "/etc/machine-id"}},
		{Spec{MachineID: "m", Mounts: []Mount{{Target: "/etc/host", Dir: true}, {Target: "/etc/hosts/x"}}}, all},
		{Spec{MachineID: "m", Scratch: []Scratch{{Target: "/etc"}}}, all[3:]},
		{Spec{MachineID: "m", Masks: []Mask{{Target: "/etc/machine-id"}}}, []string{"/etc/hostname", "/etc/hosts", "/var/lib/dbus/machine-id"}},
	} {
		var got []string
		for _, f := range tt.spec.NameFiles() {
			got = append(got, f.Target)
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%+v: %q", tt.spec, got)
		}
	}
}

func TestHostsFor(t *testing.T) {
	const line = "127.0.1.1 new\n"
	for was, want := range map[string]string{
		"":                         line,
		"127.0.0.1 localhost":      "127.0.0.1 localhost\n" + line,
		"127.0.1.1 old\n":          line,
		"\t127.0.1.1\told # x":     line,
		"127.0.1.1 a\n127.0.1.1 b": line,
		"127.0.0.1 a\n127.0.1.1 old\n# 127.0.1.1 c\n10.0.0.1 mine\n": "127.0.0.1 a\n" + line + "# 127.0.1.1 c\n10.0.0.1 mine\n",
		"127.0.1.10 old\n": "127.0.1.10 old\n" + line,
	} {
		if got := HostsFor(was, line); got != want {
			t.Errorf("%q: %q, want %q", was, got, want)
		}
	}
}
