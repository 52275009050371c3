// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"strings"
	"testing"

	"github.com/caisson-run/caisson/sandbox"
)

func TestLookup(t *testing.T) {
	all := map[string]string{Memory: "/m", CPU: "/c", IO: "/b"}
	for name, c := range map[string]struct {
		lookup           *Lookup
		cpus, memory, io sandbox.Enforcement
	}{
		"not used":   {&Lookup{Off: true}, sandbox.Off, sandbox.Emulated, sandbox.Off},
		"none here":  {found(&Host{Why: "it has none"}), sandbox.Off, sandbox.Emulated, sandbox.Off},
		"version 1":  {found(&Host{Version: 1, controllers: all}), sandbox.Enforced, sandbox.Enforced, sandbox.Off}, // writes pass there
		"version 2":  {found(&Host{Version: 2, controllers: all}), sandbox.Enforced, sandbox.Enforced, sandbox.Enforced},
		"one of all": {found(&Host{Version: 2, controllers: map[string]string{CPU: "/c"}}), sandbox.Enforced, sandbox.Emulated, sandbox.Off},
	} {
		l := c.lookup.Limits()
		for limit, want := range map[sandbox.LimitName]sandbox.Enforcement{
			sandbox.LimitCPUs: c.cpus, sandbox.LimitMemory: c.memory, sandbox.LimitIO: c.io, sandbox.LimitIOPS: c.io,
		} {
			if got := l[limit]; got.Enforcement != want || got.Detail == "" {
				t.Errorf("%s: %s is %+v, want %s", name, limit, got, want)
			}
		}
		if m := l[sandbox.LimitMemory]; c.memory == sandbox.Emulated && !strings.HasPrefix(m.Detail, "looked at 20 times a second") {
			t.Errorf("%s: %+v", name, m)
		}
	}
}

// found is a lookup that has found h.
func found(h *Host) *Lookup {
	l := &Lookup{host: h}
	l.once.Do(func() {})
	return l
}
