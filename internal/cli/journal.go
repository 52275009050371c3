// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"

	"github.com/caisson-run/caisson/audit"
	"github.com/caisson-run/caisson/internal/store"
	"github.com/caisson-run/caisson/session"
)

// openJournal opens the audit record of the state directory. It is not closed
// when a run ends: every record is on disk by then, and closing would pay for
// a checkpoint of the database.
func openJournal(ctx context.Context, dir *store.Dir) (session.Journal, error) {
	return audit.Open(ctx, audit.Options{Dir: dir.Path()})
}
