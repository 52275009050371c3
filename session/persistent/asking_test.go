// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"errors"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/approval"
	"github.com/caisson-run/caisson/approval/approvaltest"
	"github.com/caisson-run/caisson/audit"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
	"github.com/caisson-run/caisson/session/question"
	"github.com/caisson-run/caisson/session/toolcall"
)

// newAskingHome is a home under f with approvals, and who may answer.
func newAskingHome(t *testing.T, f *policy.File) (*home, *question.Approvals, approval.Who) {
	t.Helper()
	var approvals *question.Approvals
	h := newHome(t, func(o *SandboxesOptions) {
		approvals = question.New(question.Options{Dir: o.State.Path(), Journal: o.Journal})
		o.Policies, o.Approvals = map[string]*policy.File{"": f}, approvals
	})
	t.Cleanup(func() { approvals.Close() })
	return h, approvals, approvaltest.Ada(t, approvaltest.Store(t, approvals), approval.Web)
}

// In a persistent sandbox, an approval is for one call of one key in that very
// sandbox, with the contents of the files that it names.
func TestAskInASandbox(t *testing.T) {
	f, err := policy.Parse("/w/p.yaml", []byte("version: 1\ncommands: {ask: [\"touch *\", \"cat *\", \"./run *\"]}\n"))
	if err != nil {
		t.Fatal(err)
	}
	h, approvals, ada := newAskingHome(t, f)
	one := h.mustTool(t, "create_sandbox", `{}`)["sandbox_id"].(string)
	two := h.mustTool(t, "create_sandbox", `{}`)["sandbox_id"].(string)
	command := func(id, line, token string) (*toolcall.Answer, error) {
		args := `{"sandbox_id":"` + id + `","command":"` + line + `"}`
		return h.CallTool(t.Context(), h.key, &toolcall.Call{Name: "run_command", Args: []byte(args), Ways: question.Ways{Resumable: true, Approval: token}})
	}
	approved := func(id, line string) string {
		t.Helper()
		_, err := command(id, line, "")
		var p *question.Pending
		if !errors.As(err, &p) {
			t.Fatalf("%s: %v", line, err)
		}
		if _, err := approvals.Answer(t.Context(), ada, p.Request.ID, question.Answer{Yes: true, Digest: p.Request.Digest}); err != nil {
			t.Fatal(err)
		}
		return p.Token
	}
	token := approved(one, "touch x")
	if a, err := command(one, "touch x", token); err != nil || a.Failed {
		t.Errorf("%+v, %v", a, err)
	}
	refused := func(what, id, line, token, says string) {
		t.Helper()
		if _, err := command(id, line, token); !errors.Is(err, sandbox.ErrDenied) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", what, err)
		}
	}
	refused("replay", one, "touch x", token, "used already")
	refused("another sandbox", two, "touch y", approved(one, "touch y"), "not what approval was asked for")
	refused("another command", one, "touch z2", approved(one, "touch z"), "not what approval was asked for")
	write := func(text string) {
		t.Helper()
		h.mustTool(t, "write_file", `{"sandbox_id":"`+one+`","path":"f","content":"`+text+`"}`)
	}
	write("harmless")
	token = approved(one, "cat f")
	write("not so")
	refused("another content", one, "cat f", token, "not what approval was asked for")
	write("harmless")
	if a, err := command(one, "cat f", approved(one, "cat f")); err != nil || a.Output["stdout"] != "harmless" {
		t.Errorf("%+v, %v", a, err)
	}
	// Files that a line names from where it goes to, or in an option, count too.
	h.mustTool(t, "run_command", `{"sandbox_id":"`+one+`","command":"mkdir -p sub/deeper"}`)
	for _, line := range []string{"cd sub && touch x && ./g", "cd sub; cd deeper; touch x ../g", "touch x; env -C sub cat g", "touch -rsub/g x", "touch x --data=@sub/g"} {
		put := func(text string) {
			t.Helper()
			h.mustTool(t, "write_file", `{"sandbox_id":"`+one+`","path":"sub/g","content":"`+text+`"}`)
		}
		put("harmless")
		token = approved(one, line)
		put("not so")
		refused(line, one, line, token, "not what approval was asked for")
	}
	// What is written to it later cannot be approved.
	c := &session.Call{Frontend: "test"}
	c.Argv = []string{"cat"}
	if _, err := h.Handle(h.key, one).Start(t.Context(), c, StartOptions{Stdin: true}); !errors.Is(err, sandbox.ErrDenied) || !strings.Contains(err.Error(), "written to it later") {
		t.Errorf("%v", err)
	}
	// A frontend that waits hears the answer, and that the sandbox is gone.
	began := make(chan error, 1)
	waits := make(chan string, 1)
	go func() {
		c := &session.Call{Frontend: "test", OnNotice: func(s string) { waits <- s }}
		c.Argv = []string{"cat", "/dev/null"}
		_, err := h.Handle(h.key, one).Start(t.Context(), c, StartOptions{})
		began <- err
	}()
	<-waits
	if err := h.Handle(h.key, one).Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-began; !errors.Is(err, sandbox.ErrDenied) {
		t.Errorf("%v", err)
	}
}

// That a question could not be put is a failure of ours, in a persistent sandbox as
// elsewhere, and no refusal by the policy.
func TestQuestionThatFails(t *testing.T) {
	f, err := policy.Parse("/w/p.yaml", []byte("version: 1\ncommands: {ask: [\"touch *\"]}\n"))
	if err != nil {
		t.Fatal(err)
	}
	h := newHome(t, func(o *SandboxesOptions) {
		o.Policies = map[string]*policy.File{"": f}
		o.Approvals = question.New(question.Options{Dir: "/dev/null", Journal: o.Journal})
	})
	s := h.create(t, Create{})
	c := &session.Call{Frontend: "test"}
	c.Argv = []string{"touch", "x"}
	if _, err := h.Handle(h.key, s.ID).Start(t.Context(), c, StartOptions{}); err == nil || errors.Is(err, sandbox.ErrDenied) {
		t.Errorf("without a place for questions: %v", err)
	}
	for r, err := range h.log.Query(t.Context(), audit.Filter{}) {
		if err != nil || r.Status != audit.Failed {
			t.Errorf("recorded as %s, %v", r.Status, err)
		}
		break
	}
}

// A cell that the policy calls risky runs once a person has said yes to its very code.
func TestAskAboutACell(t *testing.T) {
	f, err := policy.Parse("/w/p.yaml", []byte("version: 1\ncode: {python: {deny_imports: [socket]}}\nrisk: {high: [\"call.kind == 'run_code' && call.language == 'bash'\"]}\n"))
	if err != nil {
		t.Fatal(err)
	}
	h, approvals, ada := newAskingHome(t, f)
	id := h.mustTool(t, "create_sandbox", `{}`)["sandbox_id"].(string)
	cell := func(language, code, token string) (*toolcall.Answer, error) {
		args := `{"sandbox_id":"` + id + `","context":"` + language + `","language":"` + language + `","code":"` + code + `"}`
		return h.CallTool(t.Context(), h.key, &toolcall.Call{Name: "run_code", Args: []byte(args), Ways: question.Ways{Resumable: true, Approval: token}})
	}
	if a, err := cell("python", "6*7", ""); err != nil || a.Failed {
		t.Errorf("what is not risky: %+v, %v", a, err)
	}
	approved := func(code string) string {
		t.Helper()
		_, err := cell("bash", code, "")
		var p *question.Pending
		if !errors.As(err, &p) {
			t.Fatalf("%s: %v", code, err)
		}
		if _, err := approvals.Answer(t.Context(), ada, p.Request.ID, question.Answer{Yes: true, Digest: p.Request.Digest}); err != nil {
			t.Fatal(err)
		}
		return p.Token
	}
	if a, err := cell("bash", "echo kept", approved("echo kept")); err != nil || a.Output["stdout"] != "kept\n" {
		t.Errorf("what was approved: %+v, %v", a, err)
	}
	if _, err := cell("bash", "echo more", approved("echo else")); !errors.Is(err, sandbox.ErrDenied) || !strings.Contains(err.Error(), "not what approval was asked for") {
		t.Errorf("another cell: %v", err)
	}
	if _, err := cell("bash", "cd / && python3 -c 'import socket'", ""); !errors.Is(err, sandbox.ErrDenied) || !strings.Contains(err.Error(), "imports socket") {
		t.Errorf("what no yes can allow: %v", err)
	}
}
