// SPDX-License-Identifier: Apache-2.0

package roadtest

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session/persistent"
)

// nameless is a level that passes the names of its sandboxes over.
type nameless struct{ sandbox.Driver }

func (d nameless) Start(ctx context.Context, spec *sandbox.Spec) (sandbox.Instance, error) {
	s := *spec
	s.Hostname, s.MachineID = "", ""
	return d.Driver.Start(ctx, &s)
}

// A sandbox that is not called what it is to be is given to no caller.
func TestNameNotSet(t *testing.T) {
	l := openLiving(t, filepath.Join(t.TempDir(), "state"), "gvisor", func(o *persistent.SandboxesOptions) {
		o.Drivers = map[string]sandbox.Driver{"gvisor": nameless{o.Drivers["gvisor"]}}
	})
	if _, err := l.Create(t.Context(), l.key, persistent.Create{}); !errors.Is(err, sandbox.ErrUnavailable) || !strings.Contains(err.Error(), "host name") {
		t.Errorf("made all the same: %v", err)
	}
}
