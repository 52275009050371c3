// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/approval"
	"github.com/caisson-run/caisson/approval/approvaltest"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/faketest"
	"github.com/caisson-run/caisson/session"
	"github.com/caisson-run/caisson/session/question"
	"github.com/caisson-run/caisson/session/toolcall"
)

// setHome is a home with a change set of its key: Makefile is held back in it.
type setHome struct {
	*home
	dir, id, digest string
	approvals       *question.Approvals
	ada             approval.Who
}

func newSetHome(t *testing.T, more string) *setHome {
	t.Helper()
	h := &setHome{dir: t.TempDir()}
	layer := layerOf(t, "Makefile", "all:\n", "b", "be\u202e\n", "src/a", "new\n")
	h.home = newHome(t, func(o *SandboxesOptions) {
		h.approvals = question.New(question.Options{Dir: o.State.Path(), Journal: o.Journal})
		o.Drivers = map[string]sandbox.Driver{"gvisor": &faketest.Driver{Agent: true, Changes: layer}}
		o.Policies, o.Approvals = map[string]*policy.File{"": policyOf(t, "version: 1\nfiles: {workspace: {source: "+h.dir+"}}\n"+more)}, h.approvals
	})
	t.Cleanup(func() { h.approvals.Close() })
	out := h.mustTool(t, "keep_changes", `{"sandbox_id":"`+h.create(t, Create{}).ID+`"}`)
	kept, ok := out["changes"].(map[string]any)
	if !ok || kept["files"] != 3 || kept["held"] != 1 {
		t.Fatalf("%v", out)
	}
	h.id = kept["id"].(string)
	h.digest = h.mustTool(t, "show_changes", `{"id":"`+h.id+`"}`)["digest"].(string)
	return h
}

// enroll makes an approver.
func (h *setHome) enroll(t *testing.T) {
	t.Helper()
	h.ada = approvaltest.Ada(t, approvaltest.Store(t, h.approvals), approval.Web)
}

// apply calls apply_changes with what stands behind the ID.
func (h *setHome) apply(t *testing.T, more, token string) (map[string]any, error) {
	t.Helper()
	a, err := h.CallTool(t.Context(), h.key, &toolcall.Call{Name: "apply_changes", Args: []byte(`{"id":"` + h.id + `"` + more + `}`), Ways: question.Ways{Resumable: true, Approval: token}})
	if err != nil {
		return nil, err
	}
	fits(t, "apply_changes", a)
	return a.Output, nil
}

func (h *setHome) looked() string { return `,"digest":"` + h.digest + `"` }

// asked is the question that a call is answered with.
func (h *setHome) asked(t *testing.T, more string) *question.Pending {
	t.Helper()
	out, err := h.apply(t, more, "")
	var p *question.Pending
	if !errors.As(err, &p) {
		t.Fatalf("%s: %v, %v; want a question", more, out, err)
	}
	return p
}

func (h *setHome) answer(t *testing.T, p *question.Pending, yes bool) {
	t.Helper()
	if _, err := h.approvals.Answer(t.Context(), h.ada, p.Request.ID, question.Answer{Yes: yes, Digest: p.Request.Digest}); err != nil {
		t.Fatal(err)
	}
}

// has says which of the set's files the workspace has.
func (h *setHome) has() (names string) {
	for _, name := range []string{"Makefile", "b", "src/a"} {
		if _, err := os.Lstat(filepath.Join(h.dir, name)); err == nil {
			names += " " + name
		}
	}
	return strings.TrimSpace(names)
}

func TestChangeTools(t *testing.T) {
	h := newSetHome(t, "changes: {keep: workspace}\n")
	list := h.mustTool(t, "list_changes", `{}`)["changes"].([]any)
	if one := list[0].(map[string]any); len(list) != 1 || one["id"] != h.id || one["held"] != 1 || one["workspace"] != "/workspace" {
		t.Errorf("%v", list)
	}
	a, err := h.tool(t, "show_changes", `{"id":"`+h.id+`"}`)
	if err != nil {
		t.Fatal(err)
	}
	entries, patch := a.Output["entries"].([]any), a.Output["patch"].(string)
	if held := entries[0].(map[string]any); len(entries) != 4 || held["path"] != "Makefile" || held["held"] == nil {
		t.Errorf("%v", entries)
	}
	if !strings.Contains(patch, "+new\n") || !strings.Contains(patch, "held back: ") || strings.Contains(patch, "\u202e") {
		t.Errorf("%q", patch)
	}
	if text, _ := a.Shown(); !strings.Contains(text, h.digest) || !strings.Contains(text, "1 held back") || !strings.Contains(text, "\n+new\n") {
		t.Errorf("a model reads %q", text)
	}
	part := h.mustTool(t, "show_changes", `{"id":"`+h.id+`","path":"src"}`)
	if len(part["entries"].([]any)) != 2 || strings.Contains(part["patch"].(string), "Makefile") {
		t.Errorf("%v", part)
	}
	if _, err := h.tool(t, "show_changes", `{"id":"`+h.id+`","path":"nowhere"}`); !errors.Is(err, sandbox.ErrNotFound) {
		t.Errorf("%v", err)
	}
	// A run says what was kept of it, where the policy keeps it.
	a, err = h.tool(t, "run_command", `{"command":"true"}`)
	if err != nil {
		t.Fatal(err)
	}
	kept, _ := a.Output["changes"].(map[string]any)
	if text, _ := a.Shown(); kept["files"] != 3 || !strings.Contains(text, kept["id"].(string)) {
		t.Errorf("%v %q", a.Output, text)
	}
}

// A set of another key is not there, whatever is asked of it.
func TestChangeToolsOfAnotherKey(t *testing.T) {
	h := newSetHome(t, "")
	box := h.create(t, Create{}).ID
	other := *h.home
	other.key = h.newKey(t, "stranger")
	if out := other.mustTool(t, "list_changes", `{}`); len(out["changes"].([]any)) != 0 {
		t.Errorf("it is listed: %v", out)
	}
	for name, args := range map[string]string{
		"show_changes": `{"id":"` + h.id + `"}`, "apply_changes": `{"id":"` + h.id + `"` + h.looked() + `}`, "keep_changes": `{"sandbox_id":"` + box + `"}`,
	} {
		if out, err := other.tool(t, name, args); !errors.Is(err, sandbox.ErrNotFound) {
			t.Errorf("%s: %v, %v", name, out, err)
		}
	}
}

// Where no person can be asked nothing is applied.
func TestApplyToolAsksNobody(t *testing.T) {
	h := newSetHome(t, "")
	if out, err := h.apply(t, h.looked(), ""); !errors.Is(err, sandbox.ErrDenied) || !strings.Contains(sandbox.Hint(err), "enroll") || h.has() != "" {
		t.Errorf("%v, %v, %q", out, err, h.has())
	}
}

// A person sees what is applied and where; what is held back is left. A yes is for what
// was shown.
func TestApplyTool(t *testing.T) {
	h := newSetHome(t, "")
	h.enroll(t)
	p := h.asked(t, h.looked())
	shown := p.Request.View.String()
	for _, want := range []string{h.dir, "src/a", "+new", "3 paths (held", h.digest} {
		if !strings.Contains(shown, want) {
			t.Errorf("%q is not in what is shown:\n%s", want, shown)
		}
	}
	if strings.Contains(shown, "Makefile") || strings.Contains(shown, "\u202e") {
		t.Errorf("it shows\n%s", shown)
	}
	if _, err := h.apply(t, h.looked(), p.Token); err == nil || h.has() != "" {
		t.Errorf("before an answer: %v, %q", err, h.has())
	}
	h.answer(t, p, true)
	if _, err := h.apply(t, h.looked()+`,"paths":["b"]`, p.Token); !errors.Is(err, sandbox.ErrDenied) || h.has() != "" {
		t.Errorf("a yes for all of it, used for another call: %v, %q", err, h.has())
	}
	p = h.asked(t, h.looked())
	h.answer(t, p, true)
	out, err := h.apply(t, h.looked(), p.Token)
	if err != nil || h.has() != "b src/a" || len(out["left"].([]any)) != 1 {
		t.Fatalf("%v, %v, %q", out, err, h.has())
	}
	if !recorded(t, h.home, session.KindApplyChanges, h.sandboxOf(t), "allowed") {
		t.Error("it is not in the record")
	}
}

// sandboxOf is the sandbox that the set is of.
func (h *setHome) sandboxOf(t *testing.T) string {
	t.Helper()
	set, err := h.ChangeSets(h.key).Get(h.id)
	if err != nil {
		t.Fatal(err)
	}
	return set.Run
}

// What the host changes between the question and the yes is another change.
func TestApplyToolComparesWithTheHost(t *testing.T) {
	h := newSetHome(t, "")
	h.enroll(t)
	p := h.asked(t, h.looked())
	if err := os.WriteFile(filepath.Join(h.dir, "b"), []byte("by the host\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	h.answer(t, p, true)
	if _, err := h.apply(t, h.looked(), p.Token); err == nil || h.has() != "b" {
		t.Errorf("%v, %q", err, h.has())
	}
}

// What is not applied even after a yes is refused before a question is put.
func TestApplyToolRefuses(t *testing.T) {
	h := newSetHome(t, "changes: {hold: [b]}\n")
	h.enroll(t)
	for name, c := range map[string]struct {
		more string
		kind error
	}{
		"no digest":       {``, sandbox.ErrInvalid},
		"another digest":  {`,"digest":"` + strings.Repeat("0", 64) + `"`, sandbox.ErrConflict},
		"held back":       {h.looked() + `,"paths":["Makefile"]`, sandbox.ErrDenied},
		"held by policy":  {h.looked() + `,"paths":["b"]`, sandbox.ErrDenied},
		"nothing else":    {h.looked() + `,"paths":["Make*"]`, sandbox.ErrDenied},
		"not in it":       {h.looked() + `,"paths":["c"]`, sandbox.ErrNotFound},
		"below .git":      {h.looked() + `,"paths":[".git/config"]`, sandbox.ErrNotFound},
		"of another kind": {h.looked() + `,"held":["Makefile"]`, sandbox.ErrInvalid},
	} {
		if out, err := h.apply(t, c.more, ""); !errors.Is(err, c.kind) {
			t.Errorf("%s: %v, %v, want %v", name, out, err, c.kind)
		}
	}
	if err := os.WriteFile(filepath.Join(h.home.dir.Path(), "changes", h.id, "journal"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := h.apply(t, h.looked(), ""); !errors.Is(err, sandbox.ErrConflict) || !strings.Contains(err.Error(), "half way") {
		t.Errorf("what ended half way: %v", err)
	}
	list, err := approvaltest.Store(t, h.approvals).List(context.Background())
	if err != nil || len(list) != 0 || h.has() != "" {
		t.Errorf("%d questions, %v, %q", len(list), err, h.has())
	}
}

// By the policy's rules no question is put, where they let all of it through.
func TestApplyToolByRules(t *testing.T) {
	h := newSetHome(t, "changes: {apply: [\"src/**\", Makefile]}\n")
	h.enroll(t)
	for _, more := range []string{"", `,"paths":["src","b"]`, `,"paths":["**"]`} {
		h.asked(t, h.looked()+more)
	}
	out, err := h.apply(t, h.looked()+`,"paths":["src"]`, "")
	if err != nil || h.has() != "src/a" {
		t.Errorf("%v, %v, %q", out, err, h.has())
	}
}
