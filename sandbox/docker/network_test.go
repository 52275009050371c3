// SPDX-License-Identifier: Apache-2.0

//go:build linux

package docker

import (
	"errors"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/internal/linux/tun"
	"github.com/caisson-run/caisson/sandbox"
)

// Where a container's network is out of reach a network is refused by name, with
// a hint.
func TestNetworkOutOfReach(t *testing.T) {
	here, there := address{"unix", "/run/engine.sock"}, address{"tcp", "192.0.2.1:2375"}
	for name, c := range map[string]struct {
		at      address
		euid    int
		runtime string
		want    string // a part of why not
	}{
		"an engine elsewhere":   {there, 0, "", "not on this machine"},
		"an ordinary user":      {here, 1000, "", "only root"},
		"a kernel inside":       {here, 0, "runsc", "runsc"},
		"root, an engine here":  {here, 0, "", ""},
		"elsewhere, not root":   {there, 1000, "", "not on this machine"},
		"a runtime of somebody": {here, 1000, "kata", "only root"},
	} {
		f := &facts{at: c.at}
		wire, why := f.network(c.euid, c.runtime)
		if lack, _ := tun.Usable(); lack != "" && c.want == "" {
			c.want = lack
		}
		if (wire == "") != (c.want != "") || !strings.Contains(why.Detail, c.want) || wire == "" && why.Remedy == "" {
			t.Errorf("%s: %q, %+v", name, wire, why)
		}
		err := f.checkNetwork(&sandbox.Spec{Network: &sandbox.Network{}}, c.euid, c.runtime)
		if errors.Is(err, sandbox.ErrUnsupported) != (wire == "") {
			t.Errorf("%s: %v", name, err)
		}
		if err := f.checkNetwork(&sandbox.Spec{}, c.euid, c.runtime); err != nil {
			t.Errorf("%s, without a network: %v", name, err)
		}
	}
}
