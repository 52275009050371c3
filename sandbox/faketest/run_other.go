// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package faketest

import (
	"context"

	"github.com/caisson-run/caisson/sandbox"
)

// Init does nothing here.
func Init() {}

// Run is not carried out outside Linux.
func (d *Driver) Run(context.Context, *sandbox.Spec, *sandbox.Exec) (*sandbox.Result, error) {
	d.count(0)
	return nil, sandbox.Errorf(sandbox.ErrUnsupported, "run", "the fake level needs Linux")
}

// Start is not carried out outside Linux.
func (d *Driver) Start(context.Context, *sandbox.Spec) (sandbox.Instance, error) {
	return nil, sandbox.Errorf(sandbox.ErrUnsupported, "start sandbox", "the fake level needs Linux")
}
