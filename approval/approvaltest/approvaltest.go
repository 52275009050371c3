// SPDX-License-Identifier: Apache-2.0

// Package approvaltest answers questions as a person would, for tests. Only tests
// import it.
package approvaltest

import (
	"context"
	"testing"

	"github.com/caisson-run/caisson/approval"
)

// Store is the store of a session's approvals.
func Store(t testing.TB, of interface {
	Store(context.Context) (*approval.Store, error)
}) *approval.Store {
	t.Helper()
	s, err := of.Store(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Enroll makes an approver, and returns what they show for it.
func Enroll(t testing.TB, s *approval.Store) (credential string) {
	t.Helper()
	_, credential, err := s.Enroll(t.Context(), approval.Who{}, "ada")
	if err != nil {
		t.Fatal(err)
	}
	return credential
}

// Ada is an approver who answers over a channel.
func Ada(t testing.TB, s *approval.Store, over approval.Channel) approval.Who {
	t.Helper()
	who, err := s.Authenticate(t.Context(), Enroll(t, s), over)
	if err != nil {
		t.Fatal(err)
	}
	return who
}

// SayYes answers every question until the test ends, and returns each as it was shown.
func SayYes(t testing.TB, s *approval.Store, answer func(context.Context, *approval.Request) error) <-chan string {
	ctx, shown, done := t.Context(), make(chan string, 64), make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			list, _ := s.List(ctx, approval.Pending)
			for _, r := range list {
				shown <- r.View.String()
				if err := answer(ctx, r); err != nil && ctx.Err() == nil {
					t.Error(err)
				}
			}
			if len(list) == 0 {
				s.Changes(ctx)
			}
		}
	}()
	t.Cleanup(func() { <-done }) // the test's context has ended
	return shown
}
