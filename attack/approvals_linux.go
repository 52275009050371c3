// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/caisson-run/caisson/approval"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
)

// approving is P08: a desk whose tool has to be approved, and an approver.
type approving struct {
	*desk
	ada approval.Who
}

// approvals uses a yes for what it was not said to, and says it oneself.
func (s *suite) approvals(ctx context.Context) finding {
	const asks = "approvals: {channels: [cli], timeout: 1h}\n"
	entry := marker("^P08-[a-z]+$", "    approve: always\n")
	d, err := s.desk(ctx, "P08", entry+asks)
	if err != nil {
		return unable(err)
	}
	defer func() { d.Close() }()
	a := &approving{desk: d}
	if err := a.enroll(ctx); err != nil {
		return unable(err)
	}
	// The control: what was approved runs, and asks before.
	p, err := a.ask(ctx, "P08-control")
	if a.made("P08-control") {
		return breach("it ran, and nobody had said yes")
	}
	if err == nil {
		if err = a.say(ctx, p, true); err == nil {
			err = a.present(ctx, "P08-control", p.Token, who)
		}
	}
	if f := a.works("P08-control", err); f.verdict != Pass {
		return f
	}
	if err := os.Remove(filepath.Join(a.work, "P08-control")); err != nil {
		return unable(err)
	}
	if _ = a.present(ctx, "P08-control", p.Token, who); a.made("P08-control") {
		return breach("a yes was used twice")
	}
	for _, t := range []struct {
		name, what string
		do         func(name string) error
	}{
		{"P08-early", "before the answer", func(name string) error {
			p, err := a.ask(ctx, name)
			return errors.Join(err, ignoring(a.present(ctx, name, p.Token, who)))
		}},
		{"P08-invented", "with a token of one's own", func(name string) error { return ignoring(a.present(ctx, name, "apt_AAAAAAAAAAAAAAAAAAAAAAAAAA", who)) }},
		{"P08-another", "for another call", func(name string) error {
			p, err := a.approved(ctx, "P08-one")
			return errors.Join(err, ignoring(a.present(ctx, name, p.Token, who)))
		}},
		{"P08-stolen", "by somebody else", func(name string) error {
			p, err := a.approved(ctx, name)
			return errors.Join(err, ignoring(a.present(ctx, name, p.Token, "somebody else")))
		}},
		{"P08-refused", "after a no", func(name string) error {
			p, err := a.ask(ctx, name)
			if err == nil {
				err = a.say(ctx, p, false)
			}
			return errors.Join(err, ignoring(a.present(ctx, name, p.Token, who)))
		}},
		{"P08-self", "by a yes of the caller's own", func(name string) error {
			p, err := a.ask(ctx, name)
			for _, self := range []approval.Who{{}, approval.ByElicitation("agent"), approval.AtTerminal("agent")} {
				_, _ = a.Approvals.Answer(ctx, self, p.Request.ID, session.Answer{Yes: true, Digest: p.Request.Digest})
			}
			return errors.Join(err, ignoring(a.present(ctx, name, p.Token, who)))
		}},
		{"P08-partly", "by a yes to another digest", func(name string) error {
			p, err := a.ask(ctx, name)
			for _, digest := range []string{"", "sha256:", p.Request.Digest[:len("sha256:")+4], "sha256:000000000000"} {
				_, _ = a.Approvals.Answer(ctx, a.ada, p.Request.ID, session.Answer{Yes: true, Digest: digest})
			}
			return errors.Join(err, ignoring(a.present(ctx, name, p.Token, who)))
		}},
		{"P08-policy", "under another policy", func(name string) error {
			p, err := a.approved(ctx, name)
			return errors.Join(err, a.reopen(ctx, entry+asks+"env: {set: {CHANGED: \"1\"}}\n"), ignoring(a.present(ctx, name, p.Token, who)))
		}},
		{"P08-late", "after its time", func(name string) error {
			var p *session.Pending
			var err error
			for _, time := range []string{"1s", "10s", "60s"} { // a busy machine may need longer to say yes
				if err := a.reopen(ctx, entry+"approvals: {channels: [cli], timeout: "+time+"}\n"); err != nil {
					return err
				}
				if p, err = a.approved(ctx, name); err == nil {
					break
				}
			}
			return errors.Join(err, a.expire(ctx, p), ignoring(a.present(ctx, name, p.Token, who)))
		}},
	} {
		err := t.do(t.name)
		switch {
		case a.made(t.name) || a.made("P08-one"):
			return breach("a call ran %s", t.what)
		case err != nil:
			return unable(fmt.Errorf("%s: %w", t.what, err))
		}
	}
	return pass()
}

// ignoring drops a refusal: that there is none is seen by the canary.
func ignoring(error) error { return nil }

func (a *approving) enroll(ctx context.Context) error {
	store, err := a.Approvals.Store(ctx)
	if err != nil {
		return err
	}
	_, credential, err := store.Enroll(ctx, approval.Who{}, "ada")
	if err != nil {
		return err
	}
	a.ada, err = store.Authenticate(ctx, credential, approval.CLI)
	return err
}

// ask makes a call that is asked about. The result is never nil.
func (a *approving) ask(ctx context.Context, name string) (*session.Pending, error) {
	err := a.present(ctx, name, "", who)
	var p *session.Pending
	if errors.As(err, &p) {
		return p, nil
	}
	if err == nil {
		err = sandbox.Errorf(sandbox.ErrUnavailable, "attack", "nobody was asked")
	}
	return &session.Pending{Request: &approval.Request{Digest: "sha256:none"}}, err
}

func (a *approving) approved(ctx context.Context, name string) (*session.Pending, error) {
	p, err := a.ask(ctx, name)
	if err == nil {
		err = a.say(ctx, p, true)
	}
	return p, err
}

func (a *approving) say(ctx context.Context, p *session.Pending, yes bool) error {
	_, err := a.Approvals.Answer(ctx, a.ada, p.Request.ID, session.Answer{Yes: yes, Digest: p.Request.Digest})
	return err
}

// present makes a call, with a token where there is one.
func (a *approving) present(ctx context.Context, name, token, actor string) error {
	_, err := a.CallTool(ctx, &session.ToolCall{Name: "mark", Args: []byte(arguments("name", name)), Door: "attack", Actor: actor, Resumable: true, Approval: token})
	return err
}

// expire waits until a request's time is over.
func (a *approving) expire(ctx context.Context, p *session.Pending) error {
	store, err := a.Approvals.Store(ctx)
	for end := time.Now().Add(patience); err == nil; time.Sleep(50 * time.Millisecond) {
		var now *approval.Request
		switch now, err = store.Get(ctx, p.Request.ID); {
		case err == nil && now.State == approval.Expired:
			return nil
		case time.Now().After(end):
			return nil // it does not expire: what is presented then shows it
		}
	}
	return err
}
