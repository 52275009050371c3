// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/caisson-run/caisson/audit"
	"github.com/caisson-run/caisson/sandbox"
)

// retainEvery is how often a daemon looks for calls that are too old.
const retainEvery = time.Hour

// keepRecords reads how long calls are kept: 0 is for ever.
func keepRecords(s string) (time.Duration, error) {
	now := time.Now()
	t, err := readTime("--keep-records", s, now)
	if err != nil || s == "" {
		return 0, err
	}
	// A moment (2026-01-01) is none that goes on; an hour at least, so that no
	// day's record is lost to a slip.
	if _, derr := time.Parse(time.DateOnly, s[:min(len(s), len(time.DateOnly))]); derr == nil || now.Sub(t) < retainEvery {
		return 0, &sandbox.Error{Op: "--keep-records " + sandbox.Quoted(s), Kind: sandbox.ErrInvalid, Problem: "it is not how long calls are kept, an hour or more", Hint: "write 90d"}
	}
	return now.Sub(t), nil
}

// retain drops what is known of calls that are older than keep, now and then, until
// stop is called, which waits for it.
func retain(record *audit.Log, keep time.Duration, log *slog.Logger) (stop func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		t := time.NewTicker(retainEvery)
		defer t.Stop()
		for {
			n, err := record.Prune(ctx, time.Now().Add(-keep))
			switch {
			case ctx.Err() != nil:
				return
			case err != nil:
				log.Warn("old records could not be dropped: " + err.Error())
			case n > 0:
				log.Info("old records dropped", "records", n)
			}
			select {
			case <-t.C:
			case <-ctx.Done():
				return
			}
		}
	})
	return func() error { cancel(); done.Wait(); return nil }
}
