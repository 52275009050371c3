// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package image

import (
	"context"

	"github.com/caisson-run/caisson/internal/hostpath"
	"github.com/caisson-run/caisson/sandbox"
)

// Host is not supported here: a Linux sandbox cannot use this system's programs.
func Host(context.Context, HostOptions) (*Root, error) {
	return nil, &sandbox.Error{Op: "build root filesystem", Kind: sandbox.ErrUnsupported,
		Problem: "the toolchain of this system does not run in a Linux sandbox", Hint: "run caisson on Linux"}
}

// Dir is not supported here.
func Dir(_ context.Context, src *hostpath.Source, _ DirOptions) (*Root, error) {
	return nil, &sandbox.Error{Op: "root filesystem " + src.Name, Kind: sandbox.ErrUnsupported,
		Problem: "there are no Linux sandboxes on this system", Hint: "run caisson on Linux"}
}

// PackHost is not supported here, as Host.
func PackHost(ctx context.Context, host HostOptions, _ PackOptions) (*Root, error) {
	return Host(ctx, host)
}

// PackDir is not supported here, as Dir.
func PackDir(ctx context.Context, src *hostpath.Source, _ PackOptions) (*Root, error) {
	return Dir(ctx, src, DirOptions{})
}
