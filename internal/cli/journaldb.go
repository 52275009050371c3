// SPDX-License-Identifier: Apache-2.0

//go:build !lean

package cli

import (
	"context"

	"github.com/caisson-run/caisson/audit"
)

// openRecord opens the record of a state directory for a journal.
func openRecord(ctx context.Context, dir string) (*audit.Log, error) {
	return audit.Open(ctx, audit.Options{Dir: dir})
}
