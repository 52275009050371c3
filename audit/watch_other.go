// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package audit

import (
	"context"
	"time"
)

// watch lets the caller look once a second until ctx ends.
func watch(ctx context.Context, _ string) (<-chan struct{}, error) {
	changes := make(chan struct{}, 1)
	go func() {
		defer close(changes)
		t := time.NewTicker(time.Second)
		defer t.Stop()
		for {
			select {
			case <-t.C:
			case <-ctx.Done():
				return
			}
			select {
			case changes <- struct{}{}:
			default:
			}
		}
	}()
	return changes, nil
}
