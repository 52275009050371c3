// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// What asks runs after a yes; what is denied, or not allowed besides, is
// refused.
func TestAsk(t *testing.T) {
	const file = `commands: {allow: [ls, cat, rm, {name: git, args: [status]}], deny: ["git push --force *"], ask: ["git push *", "rm *", "./deploy *", "fossil push *"]}`
	p := policyOf(t, "", file)
	for _, c := range []struct {
		name string
		call func(*Call)
		want Decision
		says string
	}{
		{"asked, and not in allow", argv("git", "push", "origin"), Ask, `"git push origin" in argument 1 needs approval by "git push *"`},
		{"in a line", bashCode("ls && git push | cat"), Ask, `"git push" at 1:7`},
		{"two", bashCode("git push; rm x"), Ask, `"rm x" at 1:11`},
		{"a path", argv("./deploy", "now"), Ask, "./deploy"},
		{"a path elsewhere", together(argv("./deploy", "now"), func(c *Call) { c.Cwd = "/tmp" }), Deny, "a path is a program of its own"},
		{"another program of that name", argv("/tmp/git", "push"), Deny, "a path is a program of its own"},
		{"denied besides", bashCode("git push; git push --force x"), Deny, "denied by"},
		{"not allowed besides", bashCode("git push; curl x"), Deny, `"curl"`},
		{"what it is cannot be told", bashCode("git $x"), Deny, "denied by"},
		{"a variable that steers", bashCode("GIT_SSH_COMMAND=x git push"), Deny, "GIT_SSH_COMMAND"},
		{"perhaps, and allowed", bashCode("rm $x"), Ask, "rm"},
		{"perhaps, and not allowed", bashCode("fossil $x"), Deny, "not among"},
		{"certainly", bashCode("fossil push $x"), Ask, "fossil push"},
		{"option that starts something", argv("git", "push", "--receive-pack=x"), Ask, "receive-pack"},
		{"terminal", together(argv("git", "push"), func(c *Call) { c.Terminal = true }), Deny, "what is typed at a terminal"},
		{"not asked", argv("ls"), Allow, ""},
	} {
		v := p.Decide(command(c.call))
		if v.Decision != c.want || !strings.Contains(v.Reason, c.says) {
			t.Errorf("%s: %v: %s [%s], want %v: %s", c.name, v.Decision, v.Reason, v.Hint, c.want, c.says)
		}
		if (v.Question != nil) != (c.want == Ask) || c.want == Ask && (v.Err() == nil || v.Plan.Isolation == "" || v.Rule != "/w/p.yaml:2") {
			t.Errorf("%s: question %+v, error %v, rule %s", c.name, v.Question, v.Err(), v.Rule)
		}
	}
}

// Who may answer, and for how long: a rule's own channels, else its file's, and
// only what the other file takes.
func TestWhoIsAsked(t *testing.T) {
	const asks = `commands: {ask: [ls, {command: rm, channels: [cli, elicitation]}]}` + "\n"
	for _, c := range []struct {
		name, system, file, argv string
		channels                 string
		timeout                  time.Duration
	}{
		{"nobody said", "", asks, "ls", "terminal cli web", 10 * time.Minute},
		{"the file", "", asks + "approvals: {channels: [web], timeout: 30s}", "ls", "web", 30 * time.Second},
		{"the rule", "", asks + "approvals: {channels: [web]}", "rm", "cli elicitation", 10 * time.Minute},
		{"both files", "approvals: {channels: [web, cli], timeout: 1m}", asks + "approvals: {channels: [web, terminal], timeout: 1h}", "ls", "web", time.Minute},
		{"the system's bound", "approvals: {channels: [cli]}", asks, "ls", "cli", 10 * time.Minute},
		{"a rule beyond it", "approvals: {channels: [cli]}", asks, "rm", "cli", 10 * time.Minute},
		{"the system asks", asks, "approvals: {channels: [cli, elicitation]}", "ls", "cli", 10 * time.Minute},
		{"nobody left", "approvals: {channels: [terminal]}", asks + "approvals: {channels: [web]}", "ls", "", 0},
		{"nobody", "", asks + "approvals: {channels: []}", "ls", "", 0},
		{"several rules", "", asks, "both", "cli", 10 * time.Minute},
	} {
		p := policyOf(t, c.system, c.file)
		call := argv(c.argv)
		if c.argv == "both" {
			call = bashCode("ls; rm")
		}
		v := p.Decide(command(call))
		if c.channels == "" {
			if v.Decision != Deny || !strings.Contains(v.Reason, "no channel") {
				t.Errorf("%s: %v: %s", c.name, v.Decision, v.Reason)
			}
			continue
		}
		if v.Question == nil {
			t.Errorf("%s: %v: %s", c.name, v.Decision, v.Reason)
			continue
		}
		if got := strings.Join(v.Question.Channels, " "); got != c.channels || v.Question.Timeout != c.timeout {
			t.Errorf("%s: %s for %v, want %s for %v", c.name, got, v.Question.Timeout, c.channels, c.timeout)
		}
	}
}

// What a tool applies to the host is asked about, by whichever layer's channels; an entry
// of the tool's own may name others, and none takes the question away.
func TestApplyIsAsked(t *testing.T) {
	for _, c := range []struct {
		name, system, file string
		ruled              bool
		channels, rule     string
	}{
		{"nobody said", "", "", false, "terminal cli web", RuleApply},
		{"the file", "", "approvals: {channels: [elicitation]}", false, "elicitation", RuleApply},
		{"both files", "approvals: {channels: [cli]}", "approvals: {channels: [cli, elicitation]}", false, "cli", RuleApply},
		{"the entry", "", "tools: [{name: apply_changes, approve: {when: 'true', channels: [elicitation]}}]", false, "elicitation", "/w/p.yaml:2"},
		{"never", "", "tools: [{name: apply_changes, approve: never}]", false, "terminal cli web", RuleApply},
		{"by rule", "", "", true, "", ""},
		{"by rule, and the entry", "", "tools: [{name: apply_changes, approve: always}]", true, "terminal cli web", "/w/p.yaml:2"},
	} {
		args := map[string]any{"id": "7f3a91c2", "digest": strings.Repeat("0", 64)}
		v := policyOf(t, c.system, c.file).Decide(&Call{Kind: CallTool, Actor: "key:ci", Tool: &ToolCall{Name: "apply_changes", Args: args, Ruled: c.ruled}})
		got := ""
		if v.Question != nil {
			got = strings.Join(v.Question.Channels, " ")
		}
		if v.Decision == Deny || got != c.channels || v.Rule != c.rule {
			t.Errorf("%s: %v by %q: %q %s, want %q", c.name, v.Decision, v.Rule, got, v.Reason, c.channels)
		}
	}
	nobody := policyOf(t, "", "approvals: {channels: []}").Decide(&Call{Kind: CallTool, Tool: &ToolCall{Name: "apply_changes", Args: map[string]any{"id": "7f3a", "digest": strings.Repeat("0", 64)}}})
	if nobody.Decision != Deny {
		t.Errorf("nobody may answer: %v", nobody.Decision)
	}
}

// What an image turns out to start is asked about, too.
func TestStartsAsks(t *testing.T) {
	p := policyOf(t, "", "image: alpine\ncommands: {ask: [ls]}")
	c := command(func(c *Call) { c.Argv, c.Image = nil, "alpine" })
	if v := p.Starts(c, []string{"ls"}); v == nil || v.Decision != Ask || v.Question == nil || v.Err() == nil {
		t.Errorf("%+v", v)
	}
}

// Where everything asks, little is noted.
func TestManyAsk(t *testing.T) {
	p := policyOf(t, "", "commands: {ask: [ls]}")
	v := p.Decide(command(bashCode(strings.Repeat("ls\n", 5000))))
	if v.Decision != Ask || len(v.Question.Askings) > maxAskings {
		t.Errorf("%v, %d", v.Decision, len(v.Question.Askings))
	}
}

func TestApprovalsShow(t *testing.T) {
	const src = "approvals: {channels: [cli], timeout: 5m, webhook: {url: \"https://example.com/x\", secret: \"file:k\"}}"
	p := policyOf(t, "", src)
	var got []string
	for _, c := range Explain(p, levels()) {
		if strings.HasPrefix(c.Name, "approvals") {
			got = append(got, c.Name+" = "+c.Value+" ("+c.From+")")
		}
	}
	want := []string{"approvals.channels = cli (/w/p.yaml:2)", "approvals.timeout = 5m0s (/w/p.yaml:2)", "approvals.webhook = https://example.com/x (/w/p.yaml:2)"}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	digests := map[string]bool{}
	for _, s := range []string{"", "approvals: {}", "approvals: {channels: []}", "approvals: {channels: [cli]}", "approvals: {timeout: 5m}", src,
		strings.Replace(src, "/x", "/y", 1), strings.Replace(src, "file:k", "file:l", 1), "commands: {ask: [ls]}", "commands: {ask: [{command: ls, channels: [cli]}]}"} {
		digests[policyOf(t, "", s).Digest()] = true
	}
	if len(digests) != 10 {
		t.Errorf("10 policies have %d digests", len(digests))
	}
}
