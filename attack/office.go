// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"context"

	"github.com/caisson-run/caisson/session/toolcall"
)

// Office is a caisson of the suite's own, put together as this installation is
// and on its level, but with a policy and a state directory of the suite's: the
// cases about the policy go at it, and nothing of them is in the user's records.
type Office struct {
	Caller
	Close func() error
}

// Caller carries calls out, of tools too: *session.Session.
type Caller interface {
	Doer
	CallTool(ctx context.Context, c *toolcall.Call) (*toolcall.Answer, error)
}

// OfficeOptions say which Office.
type OfficeOptions struct {
	Dir    string // the state directory; several may be open on one at a time
	Policy string // the policy file
}
