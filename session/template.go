// SPDX-License-Identifier: Apache-2.0

package session

import (
	"cmp"
	"context"
	"io"

	"github.com/caisson-run/caisson/audit"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
)

// KindBuildTemplate is the kind of record of a template's build. Its steps have records of
// their own.
const KindBuildTemplate = "build_template"

// RecordBuild records the build of a template: that it begins, before do builds it, and
// what came of it, the digest.
func (s *Session) RecordBuild(ctx context.Context, call *Call, name string, do func(context.Context) (digest string, err error)) error {
	in := audit.Intent{
		Actor: call.Actor, Account: call.Account, Kind: KindBuildTemplate, Policy: s.o.PolicyName, PolicySHA: s.o.Policy.Digest(),
		Image: name, Labels: map[string]string{"template": name},
	}
	return audit.Perform(ctx, s.o.Journal, in, func(ctx context.Context, _ *audit.Operation) (*sandbox.Result, error) {
		digest, err := do(ctx)
		if err != nil {
			return nil, err
		}
		return &sandbox.Result{Status: sandbox.StatusSuccess, Reason: "it is " + digest}, nil
	})
}

// PolicyDigest is the digest of the policy that calls are decided by.
func (s *Session) PolicyDigest() string { return s.o.Policy.Digest() }

// MayStart asks the policy whether a sandbox may be made as call says, of its image first
// of all, and makes none.
func (s *Session) MayStart(call *Call) error {
	r := &Invocation{Session: s, Call: call, ID: NewID(), Kind: policy.StartSandbox}
	v, err := r.Verdict()
	if err == nil && v.Decision == policy.Deny {
		err = v.Err()
	}
	return err
}

// readStep hands on what a step of a build has changed.
func (o *oneshot) readStep(ctx context.Context, box sandbox.Instance) error {
	reader, ok := box.(sandbox.ChangeReader)
	if !ok {
		return sandbox.Errorf(sandbox.ErrUnsupported, "build", "%s does not tell what a step has changed", o.Plan.Isolation)
	}
	from, to := io.Pipe()
	read := make(chan error, 1)
	go func() {
		err := reader.ReadChanges(ctx, "/", to)
		to.CloseWithError(err)
		read <- err
	}()
	err := o.Call.Changed(ctx, from)
	from.CloseWithError(err) // ends the reading
	return cmp.Or(err, <-read)
}
