// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCleanupIsLastInFirstOut(t *testing.T) {
	var c Cleanup
	var order []int
	fail := errors.New("busy")
	for i := range 3 {
		c.Add(func(ctx context.Context) error {
			order = append(order, i)
			if ctx.Err() != nil {
				t.Error("cleanup was cancelled with the call")
			}
			if i == 1 {
				return fail
			}
			return nil
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.Run(ctx); !errors.Is(err, fail) {
		t.Errorf("got %v", err)
	}
	if err := c.Run(ctx); err != nil {
		t.Errorf("a second time: %v", err)
	}
	if diff := cmp.Diff([]int{2, 1, 0}, order); diff != "" {
		t.Error(diff)
	}
}
