// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"os"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/faketest"
)

// stuck is a level that never ends anything. It makes the file began when something has
// begun.
type stuck struct {
	*faketest.Driver
	began string
}

func (s stuck) Run(context.Context, *sandbox.Spec, *sandbox.Exec) (*sandbox.Result, error) {
	return nil, s.hang()
}

func (s stuck) hang() error {
	if err := os.WriteFile(s.began, nil, 0o600); err != nil {
		return err
	}
	select {}
}

func (s stuck) Start(ctx context.Context, spec *sandbox.Spec) (sandbox.Instance, error) {
	i, err := s.Driver.Start(ctx, spec)
	return &stuckInstance{i, s}, err
}

type stuckInstance struct {
	sandbox.Instance
	level stuck
}

func (i *stuckInstance) Destroy(context.Context) error { return i.level.hang() }
