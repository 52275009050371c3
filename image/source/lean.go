// SPDX-License-Identifier: Apache-2.0

//go:build lean

package source

import (
	"context"

	"github.com/caisson-run/caisson/image/reference"
	"github.com/caisson-run/caisson/sandbox"
)

// RegistryOptions say how a registry is asked.
type RegistryOptions struct{ Insecure bool }

// Pull refuses: this program asks no registry.
func Pull(_ context.Context, r reference.Ref, _ RegistryOptions) (*Image, error) {
	return nil, &sandbox.Error{Op: "pull " + r.Familiar(), Kind: sandbox.ErrUnsupported, Problem: "registries are not asked by this program"}
}
