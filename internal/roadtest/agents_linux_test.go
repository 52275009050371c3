// SPDX-License-Identifier: Apache-2.0

package roadtest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// work is what the scripted model has an agent do: an edit, a build, a commit; and what
// would have the host run something later, or show it something of the host's.
const work = `sed -i s/hello/goodbye/ main.txt && make && git -c user.name=agent -c user.email=agent@example.com commit -qam "say goodbye" && echo committed
mkdir -p .vscode .GIT/hooks .git/hooks; echo '{}' > .vscode/tasks.json; ln -s .git src
for hook in .git/hooks/post-checkout .GIT/hooks/post-commit; do printf '#!/bin/sh\n' > $hook; chmod +x $hook; done
cat %s/canary %s; cat ~/.claude/.credentials.json ~/.codex/auth.json; env | grep -c %s`

// codingAgent is an agent from npm, and how it is run inside.
type codingAgent struct {
	name    string
	program string // below node_modules; * is the machine's
	flags   []string
	line    string
	// preset is the line under the preset, which has flags of its own.
	preset string
}

var codingAgents = []codingAgent{
	{"Claude Code", "@anthropic-ai/claude-code-linux-*/claude",
		[]string{"--allow", "api.anthropic.com", "--secret", "CLAUDE=login:claude", "--env", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "--env", "DISABLE_AUTOUPDATER=1"},
		"/opt/agent/claude -p go --dangerously-skip-permissions", "claude -p go --dangerously-skip-permissions"},
	{"Codex", "@openai/codex-linux-*/vendor/*/bin/codex",
		[]string{"--allow", "api.openai.com", "--secret", "CODEX_API_KEY=env:API_KEY@api.openai.com"},
		// The sandbox is around it: its own wants namespaces, which there are none of inside.
		"/opt/agent/codex exec --dangerously-bypass-approvals-and-sandbox -m scripted go", "CODEX_API_KEY=$OPENAI_API_KEY codex exec -m scripted go"},
}

// Claude Code with a login and Codex with a key, as npm has them, work on a repository with
// a scripted model, with flags on two levels and under the preset coding-agent. What they did is in a change set, of which the commit comes out as a
// branch; what the host would run is held back, and nothing of the host's is seen.
// CAISSON_TEST_AGENTS says where they are; make test-agents sees to it.
func TestCodingAgents(t *testing.T) {
	if os.Getenv("CAISSON_TEST_AGENTS") == "" || os.Getenv("CAISSON_TEST_BINARY") == "" {
		t.Skip("make test-agents runs it")
	}
	for _, how := range []string{"gvisor", "process", "preset"} {
		t.Run(how, func(t *testing.T) {
			onInternet(t, func(t *testing.T) {
				dir := t.TempDir()
				t.Setenv(modelLog, dir)
				ca := plugIn(t)
				for _, a := range codingAgents {
					t.Run(a.name, func(t *testing.T) { a.try(t, how, ca, dir) })
				}
			})
		})
	}
}

// try has the agent work on a level, or under the preset.
func (a codingAgent) try(t *testing.T, how, ca, model string) {
	found, err := filepath.Glob(filepath.Join(os.Getenv("CAISSON_TEST_AGENTS"), "node_modules", a.program))
	if err != nil || len(found) != 1 {
		t.Fatalf("%s is %v, %v", a.program, found, err)
	}
	home, repo := t.TempDir(), t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("API_KEY", apiKey)
	t.Setenv("OPENAI_API_KEY", apiKey)
	t.Setenv("PATH", filepath.Dir(found[0])+":"+os.Getenv("PATH")) // of which the preset shows what is needed
	t.Setenv("CAISSON_STATE", filepath.Join(t.TempDir(), "state"))
	const canary = "canary-of-the-host"
	login := filepath.Join(home, ".claude/.credentials.json")
	text := fmt.Sprintf(`{"claudeAiOauth":{"accessToken":%q,"refreshToken":%q,"expiresAt":%d,"scopes":["user:inference"],"subscriptionType":"max"}}`,
		accessBefore, refreshBefore, time.Now().Add(-time.Hour).UnixMilli())
	for path, content := range map[string]string{
		filepath.Join(home, "canary"): canary, login: text, filepath.Join(model, "line"): fmt.Sprintf(work, home, login, "sk-"),
		filepath.Join(repo, "Makefile"): "built: main.txt\n\tcp main.txt built\n", filepath.Join(repo, "main.txt"): "hello\n", filepath.Join(repo, ".gitignore"): "built\n",
	} {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	sh(t, "cd %s && git init -q . && git add . && git -c user.name=a -c user.email=a@example.com commit -qm first", repo)
	before := tree(t, repo)
	caisson := func(args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), os.Getenv("CAISSON_TEST_BINARY"), args...)
		cmd.Dir = repo
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("caisson %.200q: %v\n%.4000s", args, err, out)
		}
		return string(out)
	}
	line := a.line
	args := append([]string{"run", "--isolation", how, "--timeout", "2m", "--memory", "4GiB", "--workspace", ".", "--upstream-ca", ca, "--mount", filepath.Dir(found[0]) + ":/opt/agent"}, a.flags...)
	if how == "preset" {
		line = a.preset
		args = []string{"run", "--preset", "coding-agent", "--timeout", "2m"}
		t.Setenv("SSL_CERT_FILE", ca) // this host trusts no other authority
	}
	out := caisson(append(args, "--", "sh", "-c", line)...)
	said := out
	logs, err := filepath.Glob(filepath.Join(model, "line.*"))
	if err != nil || len(logs) < 2 {
		t.Errorf("the model was asked %d times: %v", len(logs), err)
	}
	for _, name := range logs {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		said += string(b)
		os.Remove(name)
	}
	for _, secret := range []string{canary, accessBefore, accessAfter, refreshBefore, refreshAfter, apiKey} {
		if strings.Contains(said, secret) {
			t.Errorf("%s was seen inside", secret)
		}
	}
	if !strings.Contains(out, "committed") || !strings.Contains(out, "held back: caisson changes show") {
		t.Fatalf("%.4000s", out)
	}
	if after := tree(t, repo); after != before {
		t.Errorf("the host's repository is another one:\n%s\nwas\n%s", after, before)
	}
	id, _, _ := strings.Cut(strings.SplitN(caisson("changes", "ls"), "\n", 2)[1], " ")
	shown := caisson("changes", "show", id, "--stat")
	for _, want := range []string{"M main.txt", "A .vscode/tasks.json", "A src -> .git\n  held back", "! .GIT: ", "! .git: "} {
		if !strings.Contains(shown, want) {
			t.Errorf("the change set has no %q:\n%s", want, shown)
		}
	}
	caisson("changes", "apply", id)
	sh(t, `cd %s && test "$(cat main.txt)" = goodbye && ! test -e .vscode && ! test -e src && ! test -e .git/hooks/post-checkout && ! test -e .GIT`, repo)
	caisson("changes", "branch", id, "agent")
	sh(t, `cd %s && git fsck --full && test "$(git log -1 --format=%%an:%%s agent)" = "agent:say goodbye" && test "$(git show agent:main.txt)" = goodbye`, repo)
}

// tree is what a directory has, by name and content.
func tree(t *testing.T, dir string) string {
	t.Helper()
	out, err := exec.Command("sh", "-c", `cd "$0" && find . -type f -exec sha256sum {} + | sort -k 2; find . -type l; find . -type d | sort`, dir).Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}
