package gvisor

import (
	"context"

	"github.com/caisson-run/caisson/sandbox"
)

func (d *Driver) startInstance(ctx context.Context, spec *sandbox.Spec) (sandbox.Instance, error) {
	return nil, sandbox.ErrUnsupported
}

func (d *Driver) Probe(context.Context) (sandbox.Capabilities, error) {
	return sandbox.Capabilities{}, nil
}
