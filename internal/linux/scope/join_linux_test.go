// SPDX-License-Identifier: Apache-2.0

package scope

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/internal/linux/cgroup"
	"github.com/caisson-run/caisson/sandbox"
)

const beside = "caisson-sandboxes.service"

// stuckService is a service's process that is in the way of the next one, until it
// is in the group of the service beside.
func stuckService(t *testing.T, m *manager) host {
	t.Helper()
	h := user(t, m, &cgroup.Host{Version: 2})
	h.systemBus, h.toJoin = filepath.Join(h.runtimeDir, "system", "bus"), time.Minute
	if err := os.WriteFile(m.group, []byte("0::/system.slice/caisson.service\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	h.stuck = func(*cgroup.Host) string {
		if text, _ := os.ReadFile(m.group); strings.HasSuffix(string(text), "/"+beside+"/caisson-self\n") {
			return ""
		}
		return "it could not be started again"
	}
	return h
}

func TestJoin(t *testing.T) {
	for _, late := range []int{0, 3} { // the service beside is just being started
		m := &manager{late: late}
		h := stuckService(t, m)
		m.serve(h.systemBus)
		joined, err := h.join(t.Context(), beside)
		if !joined || err != nil {
			t.Fatalf("%d: %v, %v", late, joined, err)
		}
		if got := fmt.Sprint(m.got...); got != "caisson-sandboxes.service/caisson-self[77]" {
			t.Errorf("%d: asked for %s", late, got)
		}
		if again, err := h.join(t.Context(), beside); again || err != nil {
			t.Errorf("%d: again %v, %v", late, again, err)
		}
	}
}

func TestNotJoined(t *testing.T) {
	for name, m := range map[string]*manager{
		"no bus": nil, "refused": {refuse: "org.freedesktop.DBus.Error.InvalidArgs"}, "nobody moved": {lazy: true}, "silence": {silent: true},
	} {
		t.Run(name, func(t *testing.T) {
			bus := m
			if bus == nil {
				bus = &manager{}
			}
			h := stuckService(t, bus)
			h.toJoin = 200 * time.Millisecond
			if m != nil {
				m.serve(h.systemBus)
			}
			joined, err := h.join(t.Context(), beside)
			if joined || !errors.Is(err, sandbox.ErrUnsupported) || !strings.Contains(sandbox.Hint(err), beside) {
				t.Errorf("%v, %v (hint %q)", joined, err, sandbox.Hint(err))
			}
		})
	}
}
