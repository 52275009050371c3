// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"

	"github.com/caisson-run/caisson/audit"
	"github.com/caisson-run/caisson/internal/config"
	"github.com/caisson-run/caisson/internal/linux/scope"
	"github.com/caisson-run/caisson/internal/store"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/session"
	"github.com/caisson-run/caisson/session/question"
)

// opened is a session and what it stands on.
type opened struct {
	*session.Session
	journal audit.Journal
	state   string // the state directory
	closers []func() error
}

func (o *opened) close() error {
	var errs []error
	for i := len(o.closers) - 1; i >= 0; i-- {
		errs = append(errs, o.closers[i]())
	}
	return errors.Join(errs...)
}

// open reads the policies, opens the state directory and the audit record, and makes a
// session of them.
func (a *app) open(ctx context.Context, policyFile string) (*opened, error) {
	return a.openIn(ctx, a.state, policyFile)
}

// openRecord opens the audit record for a process that ends soon. It is not closed: each
// record is on disk when the call that wrote it returns, and closing would pay for a
// checkpoint of the database.
func openRecord(ctx context.Context, dir *store.Dir) (audit.Journal, error) {
	log, err := audit.Open(ctx, audit.Options{Dir: dir.Path()})
	if err != nil {
		return nil, err
	}
	return log, nil
}

// openIn is open with another state directory than the usual one.
func (a *app) openIn(ctx context.Context, state, policyFile string) (*opened, error) {
	p, err := config.Policy(policyFile)
	if err != nil {
		return nil, err
	}
	return a.openUnder(ctx, state, p, policyFile)
}

// openUnder is openIn with policies that were read.
func (a *app) openUnder(ctx context.Context, state string, p *policy.Policy, policyFile string) (_ *opened, err error) {
	o := &opened{}
	defer func() {
		if err != nil {
			o.close()
		}
	}()
	// An ordinary user on systemd needs a delegated scope for limits to hold;
	// what this process starts from here on is in it. Where there is none the
	// level says which limits that costs. It comes before the levels are made:
	// they look at the group this process is in.
	_, _ = scope.Enter(ctx)
	dir, err := store.Open(store.Options{Dir: state})
	if err != nil {
		return nil, err
	}
	o.closers = append(o.closers, dir.Close)
	if note := dir.Note(); note != "" {
		a.note("%s", note)
	}
	rates := &counting{dir: dir.Path()}
	o.state = dir.Path()
	if o.journal, err = openRecord(ctx, dir); err != nil {
		return nil, err
	}
	approvals := question.New(question.Options{Dir: o.state, Journal: o.journal, Complain: func(err error) { a.note("%v", err) }})
	o.closers = append(o.closers, rates.close, approvals.Close)
	o.Session, err = session.New(session.Options{Drivers: a.drivers(), Policy: p, PolicyName: policyFile, Journal: o.journal, State: session.DirState(dir), Rates: rates, Approvals: approvals})
	return o, err
}
