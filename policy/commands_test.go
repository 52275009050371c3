// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"strings"
	"testing"
)

const someCommands = `commands:
  allow:
    - ls
    - cat
    - {name: git, args: [status, diff, log, "push origin *"]}
    - {name: npm, args: [test]}
    - {name: python3, args: ["-m pytest", job.py]}
    - {name: make, args: ["**"]}
    - {name: sh}
    - rm
    - ./tool
    - find
    - {name: docker, args: ["run --rm alpine"]}
  deny: ["rm -rf *", "git push --force *"]
  ask: ["git push *"]
  env: [DATABASE_URL, PATH]
`

func bashCode(line string) func(*Call) {
	return func(c *Call) {
		c.Kind, c.Argv, c.Language, c.Program, c.Script = RunCode, nil, "bash", []string{"bash", "main.bash"}, line
	}
}

func argv(words ...string) func(*Call) { return func(c *Call) { c.Argv = words } }

func TestCommands(t *testing.T) {
	p := policyOf(t, "", someCommands)
	for _, c := range []struct {
		name string
		call func(*Call)
		rule string // empty: allowed
		want string // in reason or hint
	}{
		{"plain", argv("ls", "-la"), "", ""},
		{"by path", argv("/usr/bin/ls"), "", ""},
		{"another path", argv("/tmp/ls"), "/w/p.yaml:4", "a path is a program of its own"},
		{"listed path", argv("./tool", "x"), "", ""},
		{"listed path elsewhere", bashCode("cd /tmp && ./tool"), "/w/p.yaml:4", "a path is a program of its own"},
		{"listed path elsewhere by env", bashCode("env -C /tmp ./tool"), "/w/p.yaml:4", "a path is a program of its own"},
		{"listed path elsewhere by letters of env", bashCode("env -iC /tmp ./tool"), "/w/p.yaml:4", "a path is a program of its own"},
		{"listed path by env", bashCode("env -i ./tool"), "", ""},
		{"a variable of xargs's", bashCode("ls | xargs --process-slot-var=PATH ls"), "/w/p.yaml:2", "PATH"},
		{"listed path from elsewhere", together(argv("./tool"), func(c *Call) { c.Cwd = "/tmp" }), "/w/p.yaml:4", "a path is a program of its own"},
		{"a path that starts", argv("./env", "ls"), "/w/p.yaml:4", "a path is a program of its own"},
		{"a shell that is none", argv("/tmp/bash", "-c", "ls"), "/w/p.yaml:4", "a path is a program of its own"},
		{"not listed", argv("curl", "x"), "/w/p.yaml:4", `"curl" in argument 1 is not among`},
		{"letters", argv("ｌｓ"), "/w/p.yaml:4", "look like others"},
		{"subcommand", argv("git", "status", "-s"), "", ""},
		{"behind options", argv("git", "-C", "x", "--no-pager", "log"), "", ""},
		{"other subcommand", argv("git", "commit"), "/w/p.yaml:4", "args: [\"commit\"]"},
		{"subcommand as a value", argv("git", "commit", "-m", "status"), "/w/p.yaml:4", "not with these"},
		{"no subcommand", argv("git"), "/w/p.yaml:4", "not with these"},
		{"option that starts", argv("git", "-c", "core.pager=x", "log"), "/w/p.yaml:4", "with these arguments"},
		{"option behind it", argv("git", "diff", "--ext-diff"), "/w/p.yaml:4", "starts a program"},
		{"npm", argv("npm", "test", "--", "-u"), "", ""},
		{"npm exec", argv("npm", "exec", "evil"), "/w/p.yaml:4", "not with these"},
		{"npm shell", argv("npm", "test", "--script-shell=./x"), "/w/p.yaml:4", "--script-shell"},
		{"module", argv("python3", "-m", "pytest", "-q"), "", ""},
		{"script", argv("python3", "-u", "job.py"), "", ""},
		{"other script", argv("python3", "x.py"), "/w/p.yaml:4", "not with these"},
		{"code", argv("python3", "-c", "x", "-m", "pytest"), "/w/p.yaml:4", ""},
		{"code after", argv("python3", "-m", "pytest", "-c", "x"), "", ""}, // pytest's own -c
		{"anything", argv("make", "SHELL=x", "--eval=y"), "", ""},
		{"options", argv("docker", "run", "--rm", "alpine", "sh"), "", ""},
		{"without the option", argv("docker", "run", "alpine"), "/w/p.yaml:4", ""},
		{"shell", argv("sh", "-c", "ls | cat"), "", ""},
		{"login shell", argv("bash", "-l", "-c", "cd x && git status"), "", ""},
		{"shell line", argv("bash", "-lc", "ls; curl x"), "/w/p.yaml:4", `"curl" in argument 3`},
		{"shell stdin", argv("sh"), "/w/p.yaml:4", "reads commands from its input"},
		{"shell script", argv("sh", "x.sh"), "/w/p.yaml:4", "script file"},
		{"find", argv("find", ".", "-name", "x"), "", ""},
		{"find exec", argv("find", ".", "-exec", "curl", "{}", ";"), "/w/p.yaml:4", "curl"},
		{"wrapped", argv("timeout", "5", "env", "CI=1", "ls"), "", ""},
		{"wrapped badly", argv("timeout", "5", "env", "CI=1", "curl"), "/w/p.yaml:4", "curl"},
		{"variable", argv("env", "LD_PRELOAD=x", "ls"), "/w/p.yaml:2", "LD_PRELOAD is set"},
		{"named variable", argv("env", "DATABASE_URL=x", "ls"), "", ""},
		{"never", argv("env", "PATH=/tmp", "ls"), "/w/p.yaml:2", "PATH is set"},

		{"denied", argv("rm", "-rf", "/x"), "/w/p.yaml:15", "denied"},
		{"denied apart", argv("rm", "x", "-r", "-f"), "/w/p.yaml:15", "denied"},
		{"denied long", argv("rm", "--recursive", "--force", "x"), "/w/p.yaml:15", "denied"},
		{"denied in short", argv("rm", "-Rf", "x"), "/w/p.yaml:15", "denied"},
		{"denied in between", argv("rm", "-vrfi", "x"), "/w/p.yaml:15", "denied"},
		{"denied maybe", bashCode(`rm "$x" y`), "/w/p.yaml:15", "denied"},
		{"not denied", argv("rm", "-r", "x"), "", ""},
		{"denied first", argv("git", "push", "--force", "origin"), "/w/p.yaml:15", "denied"},
		{"denied equals", argv("git", "push", "origin", "--force=x"), "/w/p.yaml:16", "approval"},
		{"asks", argv("git", "push", "origin", "main"), "/w/p.yaml:16", "needs approval"},
		{"asks behind options", argv("git", "-C", "x", "push"), "/w/p.yaml:16", "needs approval"},

		{"code of bash", bashCode("set -e\ncd x\ngit diff | cat > out\n"), "", ""},
		{"code with a place", bashCode("ls\n  git status && curl x"), "/w/p.yaml:4", `"curl" at 2:17`},
		{"code that cannot be told", bashCode("$x"), "/w/p.yaml:2", "at 1:1"},
		{"code with a redirect", bashCode("cat x > ~/.bashrc"), "/w/p.yaml:2", ".bashrc"},
		{"shebang with options", func(c *Call) {
			bashCode("ls")(c)
			c.Program = []string{"/bin/bash", "-x", "main.bash"}
		}, "/w/p.yaml:4", "script file"},
		{"code of python", func(c *Call) {
			c.Kind, c.Argv, c.Language, c.Program = RunCode, []string{"-v"}, "python", []string{"python3", "main.py"}
		}, "/w/p.yaml:4", ""},
		{"a named file", func(c *Call) {
			c.Kind, c.Argv, c.Language, c.Program = RunCode, nil, "python", []string{"python3", "job.py"}
		}, "", ""},
		{"terminal", together(argv("ls"), func(c *Call) { c.Terminal = true }), "/w/p.yaml:4", "terminal"},
		{"terminal for anything", together(argv("make"), func(c *Call) { c.Terminal = true }), "", ""},
		{"sandbox", func(c *Call) { c.Kind, c.Argv = StartSandbox, nil }, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := p.Decide(command(c.call))
			if (v.Decision == Allow) != (c.rule == "") || v.Rule != c.rule || !strings.Contains(v.Reason+v.Hint, c.want) {
				t.Errorf("%v by %q: %s [%s]; want rule %q, %q", v.Decision, v.Rule, v.Reason, v.Hint, c.rule, c.want)
			}
			if v.Decision != Allow && (v.Rule == "" || v.Reason == "") {
				t.Error("a refusal that says nothing")
			}
		})
	}
}

// TestArguments: an entry's words stand where the program reads them.
func TestArguments(t *testing.T) {
	p := policyOf(t, "", `commands:
  allow:
    - {name: git, args: ["push origin *", "checkout -- *"]}
    - {name: docker, args: ["run --rm alpine"]}
    - {name: python3, args: [job.py]}
    - {name: npm, args: ["run test", "test -- -u"]}
    - {name: cp, args: ["* /safe"]}
    - {name: tee, args: ["* -a"]}
`)
	for _, c := range []struct {
		call func(*Call)
		want Decision
	}{
		{argv("git", "push", "origin", "main"), Allow},
		{argv("git", "push", "-o", "origin", "evil", "main"), Deny}, // a value, and then another remote
		{argv("git", "push", "--push-option", "origin", "evil"), Deny},
		{argv("git", "push", "--push-option=x", "origin", "main"), Allow},
		{argv("git", "push", "-u", "origin", "main"), Allow},
		{argv("git", "-C", "x", "push", "--dry-run", "origin", "main"), Allow},
		{argv("git", "checkout", "--", "x"), Allow},
		{argv("docker", "run", "--rm", "alpine"), Allow},
		{argv("docker", "run", "--rm", "-e", "alpine", "evil"), Deny},
		{argv("docker", "run", "alpine", "--", "--rm"), Deny}, // no option of docker's
		{argv("npm", "run", "-w", "test", "evil"), Deny},
		{argv("npm", "test", "--", "-u"), Allow},
		{argv("python3", "-u", "job.py"), Allow},
		{argv("cp", "a", "/safe"), Allow},
		{bashCode(`cp "$x" /safe`), Allow},
		{bashCode("cp $x /evil"), Deny},
		{bashCode("cp $x /safe"), Deny}, // x may be two words
		{bashCode("cp {a,/evil} /safe"), Deny},
		{bashCode("cp * /safe"), Deny},
		{argv("tee", "x", "-a"), Allow},
		{bashCode("tee $x"), Deny},
	} {
		call := command(c.call)
		if v := p.Decide(call); v.Decision != c.want {
			t.Errorf("%q %s: %v, %s; want %v", call.Argv, call.Script, v.Decision, v.Reason, c.want)
		}
	}
}

// TestCommandsOfBothFiles: a command must pass every layer, and silence of one
// is no word against it.
func TestCommandsOfBothFiles(t *testing.T) {
	for _, c := range []struct {
		system, file, argv, rule string
	}{
		{"commands: {allow: [ls, cat]}", "commands: {allow: [ls, rm]}", "ls", ""},
		{"commands: {allow: [ls, cat]}", "commands: {allow: [ls, rm]}", "cat", "/w/p.yaml:2"},
		{"commands: {allow: [ls, cat]}", "commands: {allow: [ls, rm]}", "rm", "/etc/caisson/policy.yaml:2"},
		{"commands: {deny: [rm]}", "isolation: gvisor", "rm", "/etc/caisson/policy.yaml:2"},
		{"commands: {deny: [rm]}", "isolation: gvisor", "curl", ""},
		{"commands: {allow: []}", "isolation: gvisor", "true", ""},
		{"commands: {allow: []}", "isolation: gvisor", "ls", "/etc/caisson/policy.yaml:2"},
		{`commands: {allow: ["*"]}`, "isolation: gvisor", "curl", ""},
		{`commands: {allow: ["*"]}`, "isolation: gvisor", "python3", "/etc/caisson/policy.yaml:2"},
		{`commands: {allow: [{name: "*", args: ["**"]}]}`, "isolation: gvisor", "python3", ""},
	} {
		p := policyOf(t, c.system, c.file)
		if v := p.Decide(command(argv(c.argv))); v.Rule != c.rule || (v.Decision == Allow) != (c.rule == "") {
			t.Errorf("%s, %s: %s: %v by %q %s, want %q", c.system, c.file, c.argv, v.Decision, v.Rule, v.Reason, c.rule)
		}
	}
}

// TestStarts: what an image turns out to run is judged as what is written is.
func TestStarts(t *testing.T) {
	p := policyOf(t, "", "image: alpine\ncommands: {allow: [ls]}")
	c := command(func(c *Call) { c.Argv = nil })
	c.Image = "alpine"
	if v := p.Decide(c); v.Decision != Allow {
		t.Fatal(v.Reason)
	}
	if v := p.Starts(c, []string{"ls"}); v != nil {
		t.Error(v.Reason)
	}
	if v := p.Starts(c, []string{"/entry", "ls"}); v == nil || v.Decision == Allow || v.Err() == nil {
		t.Error("an image's own program is let through")
	}
	if v := policyOf(t, "", "").Starts(c, []string{"/entry"}); v != nil {
		t.Error("refused without a list")
	}
}

// TestCommandsShow: explain and digest know the section.
func TestCommandsShow(t *testing.T) {
	p := policyOf(t, "", "commands: {allow: [ls, {name: git, args: [log]}], deny: [rm]}")
	var got []string
	for _, c := range Explain(p, levels()) {
		if strings.HasPrefix(c.Name, "commands") {
			got = append(got, row(c))
			if c.Levels["gvisor"].Detail != commandsDetail {
				t.Errorf("%+v", c.Levels)
			}
		}
	}
	want := "commands.allow = ls (/w/p.yaml:2) emulated emulated refused\ncommands.allow = git [log] (/w/p.yaml:2) emulated emulated refused\ncommands.deny = rm (/w/p.yaml:2) emulated emulated refused"
	if s := strings.Join(got, "\n"); s != want {
		t.Errorf("got\n%s\nwant\n%s", s, want)
	}
	digests := map[string]bool{}
	for _, src := range []string{"", "commands: {}", "commands: {allow: []}", "commands: {allow: [ls]}", "commands: {deny: [ls]}", "commands: {ask: [ls]}", "commands: {env: [LS]}", "commands: {allow: [{name: ls, args: [x]}]}"} {
		digests[policyOf(t, "", src).Digest()] = true
	}
	if len(digests) != 8 {
		t.Errorf("8 policies have %d digests", len(digests))
	}
}

func BenchmarkDecideCommand(b *testing.B) {
	p := policyOf(b, "", someCommands)
	c := command(bashCode("cd src && git diff --stat HEAD~1 | cat"))
	if v := p.Decide(c); v.Decision != Allow {
		b.Fatal(v.Reason)
	}
	for b.Loop() {
		p.Decide(c)
	}
}

// TestCommandHintsHelp: what a refusal says would allow the command does.
func TestCommandHintsHelp(t *testing.T) {
	decide := func(commands string, argv []string) Verdict {
		f, err := Parse("/w/p.yaml", []byte("version: 1\n"+commands+"\n"))
		if err != nil {
			t.Fatalf("%s: %v", commands, err)
		}
		p, err := New(Options{File: f})
		if err != nil {
			t.Fatal(err)
		}
		return p.Decide(&Call{Kind: RunCommand, Argv: argv, Operator: true})
	}
	for _, argv := range [][]string{
		{"curl", "x"}, {"python3", "-c", "print(1)"}, {"python3", "x.py"}, {"python3", "-m", "pytest"}, {"node", "-e", "1"}, {"perl", "-e", "1"},
		{"git", "-c", "core.pager=x", "log"}, {"tar", "--to-command=x", "-xf", "y"}, {"sh", "x.sh"},
	} {
		v := decide("commands: {allow: [ls]}", argv)
		_, hint, ok := strings.Cut(v.Hint, "add to /w/p.yaml: ")
		if v.Decision != Deny || !ok {
			t.Errorf("%q: %v, %q", argv, v.Decision, v.Hint)
			continue
		}
		if again := decide(hint, argv); again.Decision != Allow {
			t.Errorf("%q: with %s: %s", argv, hint, again.Reason)
		}
	}
}
