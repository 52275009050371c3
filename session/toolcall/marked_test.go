// SPDX-License-Identifier: Apache-2.0

package toolcall

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/approval"
	"github.com/caisson-run/caisson/approval/approvaltest"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session/question"
)

const markedPolicy = `version: 1
env: {pass: [KEY]}
tools:
  - {name: run_command, approve: always}
  - name: greet
    params: {type: object, properties: {whom: {type: string}, password: {type: string}}, required: [whom, password], additionalProperties: false}
    command: [ls, "pw={password}", "{whom}"]
    redact: [password]
    approve: always
commands: {allow: [ls], deny: ["ls * denied"], ask: ["ls * asked"]}
approvals: {channels: [terminal, cli]}
`

// person answers at a terminal.
type person func(ctx context.Context, r *approval.Request) (approval.Who, question.Answer, error)

func (p person) Ask(ctx context.Context, r *approval.Request) (approval.Who, question.Answer, error) {
	return p(ctx, r)
}
func (p person) Channel() approval.Channel { return approval.Terminal }

// TestMarkedArguments: what no record has is in no question either, in no verdict, and
// in no file of the state directory; and yet the yes is for that very value.
func TestMarkedArguments(t *testing.T) {
	const secret = "hunter2-and-more"
	b := newBench(t, markedPolicy)
	var seen []string
	ask := func(yes bool) question.Asker {
		return person(func(_ context.Context, r *approval.Request) (approval.Who, question.Answer, error) {
			seen = append(seen, r.View.String())
			return approval.AtTerminal("tester"), question.Answer{Yes: yes, Digest: r.Seal()}, nil
		})
	}
	call := func(name, arguments string, change func(*Call)) error {
		c := &Call{Name: name, Args: []byte(arguments), Actor: "agent", Ways: question.Ways{Ask: ask(true)}}
		if change != nil {
			change(c)
		}
		_, err := b.CallTool(t.Context(), c)
		return err
	}
	if err := errors.Join(
		call("greet", `{"whom":"you","password":"`+secret+`"}`, nil),
		call("greet", `{"whom":"asked","password":"`+secret+`"}`, nil),
		call("run_command", `{"command":"ls","env":{"KEY":"`+secret+`"}}`, nil),
	); err != nil {
		t.Fatal(err)
	}
	if len(seen) != 3 || !strings.Contains(seen[0], "[redacted]") || !strings.Contains(seen[0], `"whom":"you"`) {
		t.Errorf("%q", seen)
	}
	for _, c := range []struct{ name, arguments string }{
		{"greet", `{"whom":"denied","password":"` + secret + `"}`},
		{"greet", `{"whom":3,"password":"` + secret + `"}`},
		{"greet", `{"whom":"you","password":["` + secret + `"]}`},
		{"run_command", `{"command":"cat","env":{"KEY":"` + secret + `"}}`},
		{"run_command", `{"command":"ls","env":{"OTHER":"` + secret + `"}}`},
	} {
		if err := call(c.name, c.arguments, nil); err == nil || strings.Contains(err.Error()+sandbox.Hint(err), secret) {
			t.Errorf("%s %s: %v", c.name, c.arguments, err)
		}
	}
	// The same call with another secret is another call.
	who := approvaltest.Ada(t, approvaltest.Store(t, b.approvals), approval.CLI)
	pend := func(password string) string {
		var p *question.Pending
		err := call("greet", `{"whom":"you","password":"`+password+`"}`, func(c *Call) { c.Ask, c.Resumable = nil, true })
		if !errors.As(err, &p) {
			t.Fatal(err)
		}
		if _, err := b.approvals.Answer(t.Context(), who, p.Request.ID, question.Answer{Yes: true, Digest: p.Request.Seal()}); err != nil {
			t.Fatal(err)
		}
		return p.Token
	}
	with := func(token, password string) error {
		return call("greet", `{"whom":"you","password":"`+password+`"}`, func(c *Call) { c.Ask, c.Approval = nil, token })
	}
	if err := with(pend(secret), secret); err != nil {
		t.Error(err)
	}
	if err := with(pend(secret), "another"); err == nil || !strings.Contains(err.Error(), "not what approval was asked for") {
		t.Errorf("another secret: %v", err)
	}
	err := filepath.WalkDir(b.state.Path(), func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		if bytes.Contains(text, []byte(secret)) {
			t.Errorf("%s has what is marked", d.Name())
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	for _, v := range seen {
		if strings.Contains(v, secret) {
			t.Errorf("the approver sees\n%s", v)
		}
	}
}
