// SPDX-License-Identifier: Apache-2.0

package gvisor

import (
	"context"

	"github.com/caisson-run/caisson/sandbox"
)

func (d *Driver) startInstance(context.Context, *sandbox.Spec) (sandbox.Instance, error) {
	return nil, sandbox.Errorf(sandbox.ErrUnsupported, "start sandbox", "gvisor has no living sandboxes yet")
}
