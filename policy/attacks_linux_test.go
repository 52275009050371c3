// SPDX-License-Identifier: Apache-2.0

//go:build linux

package policy

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/tool/params"
)

// The lines that a shell must not get, P01 to P06. Each starts touch, which no list allows,
// and which makes the canary {}; what else it starts the list allows, by name. Each makes
// its canary where nothing judges it (TestLinesDoWhatTheySay).

// allowedPrograms is the list.
const allowedPrograms = `[cat, echo, env, find, git, ls, mkdir, nice, sed, setsid, sort, tar, timeout, "true", xargs]`

func shellLines() map[string][]string {
	return map[string][]string{
		// Lists, pipes, substitutions, here-documents.
		"P01": {
			"true && touch {}", "false || touch {}", "true; touch {}", "true | touch {}", "true & touch {}", "true\ntouch {}",
			"echo $(touch {})", "echo `touch {}`", `echo "${x:-$(touch {})}"`, "echo $((0 $(touch {})))",
			"cat < <(touch {})", "cat < <(sh < <(echo touch {}))", "true > >(touch {}); wait $!", "cat <<E\n$(touch {})\nE", "sh <<'E'\ntouch {}\nE", "sh <<< 'touch {}'",
			"( touch {} )", "{ touch {}; }", "if true; then touch {}; fi", "while touch {}; do break; done", "for i in a; do touch {}; done",
			"case a in $(touch {})a) true;; esac", "f() { touch {}; }; f", "! touch {}", "time touch {}", "[[ -n $(touch {}) ]]", "a[$(touch {})0]=1",
			"trap 'touch {}' EXIT", "eval touch {}", "exec touch {}", "command touch {}", "builtin command touch {}", ". <(echo touch {})", "coproc touch {}; wait",
			"echo x | while read y; do touch {}; done", "x='a[$(touch {})0]'; echo $((x))",
		},
		// More commands than are counted.
		"P02": {
			strings.Repeat("true; ", 50) + "touch {}", strings.Repeat("true; ", 10_000) + "touch {}", strings.Repeat("true && ", 51) + "touch {}",
			strings.Repeat("true\n", 2_000) + "touch {}\n" + strings.Repeat("true\n", 2_000), strings.Repeat("( ", 40) + "touch {}" + strings.Repeat(" )", 40),
			strings.Repeat("true | ", 60) + "touch {}", strings.Repeat(" ", 60_000) + "touch {}",
		},
		// Programs that start programs.
		"P03": {
			"env touch {}", "env A=1 touch {}", "env -S 'touch {}'", "nice touch {}", "nice -n 5 touch {}", "timeout 5 touch {}", "setsid -w touch {}",
			"echo {} | xargs touch", "echo {} | xargs -I% touch %", "echo {} | xargs sh -c 'touch $0'", "echo {} | xargs --process-slot-var=PATH ls", "sh -c 'touch {}'", "bash -c 'touch {}'", "env nice timeout 5 sh -c 'touch {}'",
			`find . -maxdepth 0 -exec touch {} \;`, `find . -maxdepth 0 -exec sh -c 'touch {}' \;`,
			"tar -cf x.tar --checkpoint=1 --checkpoint-action=exec='touch {}' .", "tar -cf x.tar -I 'touch {};cat' .", "tar -cf x.tar --use-compress-program='sh -c \"touch {};cat\"' .",
			"sed -n '1e touch {}' /etc/passwd", "sed 's/.*/touch {}/e' <<< x",
			"git -c alias.x='!touch {}' x", "git -c diff.external='touch {};true' diff --no-index /etc/passwd /etc/group", "git -c core.fsmonitor='touch ../{};false' -C g status",
		},
		// What is set before, and what builtins make of names.
		"P04": {
			"BASH_ENV=<(echo touch {}) bash -c true", "ls() { touch {}; }; ls", "shopt -s expand_aliases\nalias ls='touch {}'\nls", "hash -p /usr/bin/touch ls; ls {}",
			"PATH=$PWD/evil; ls {}", "PATH=$PWD/evil ls {}", "export PATH=$PWD/evil; ls {}", "declare -x PATH=$PWD/evil; ls {}", "typeset PATH=$PWD/evil; ls {}", "printf -v PATH %s $PWD/evil; ls {}",
			"read PATH <<< $PWD/evil; ls {}", "declare -n r=PATH; r=$PWD/evil; ls {}", "env PATH=$PWD/evil ls {}", "PS4='$(touch {})'; set -x; true", "mapfile -C 'touch {}; true' -c 1 <<< a",
			"GIT_EXTERNAL_DIFF='touch {};true' git diff --no-index /etc/passwd /etc/group", "export GIT_EXTERNAL_DIFF='touch {};true'; git diff --no-index /etc/passwd /etc/group", "GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=alias.x GIT_CONFIG_VALUE_0='!touch {}' git x",
			"TAR_OPTIONS=\"--checkpoint=1 --checkpoint-action=exec='touch {}'\" tar -cf x.tar .",
		},
		// Other ways to write a name.
		"P05": {
			`to""uch {}`, `t'o'uch {}`, `\t\o\u\c\h {}`, `$'\x74ouch' {}`, `$'\164ouch' {}`, `{touch,{}}`, "touch${IFS}{}", "a=touch; $a {}", "${x:-touch} {}", "$(echo touch) {}",
			`x=tou; y=ch; $x$y {}`, `"to"$'\u0075'ch {}`, "/usr/bin/touc? {}", "/???/bin/t[o]uch {}", "a=(touch {}); ${a[@]}", "set -- touch {}; \"$@\"", "x=hcuot; ${x:4:1}${x:3:1}${x:2:1}${x:1:1}${x:0:1} {}",
			"tou\\\nch {}", `${BASH:0:0}touch {}`, "x='touch {}'; eval \"$x\"",
		},
		// Names that lead elsewhere: ./ls and evil/ls are the attacker's.
		"P06": {
			"./ls {}", "evil/ls {}", "$PWD/ls {}", "cd evil && ./ls ../{}", "link/ls {}", "/proc/self/cwd/ls {}", "/proc/self/root/usr/bin/touch {}", "/usr/bin/../bin/touch {}", "/bin/touch {}",
			"env -C evil ./ls ../{}", "env -iC evil ./ls ../{}", "env ./ls {}", "./find {}", "find . -maxdepth 0 -exec ./ls {} \\;",
		},
	}
}

// argvs of P06 are started without a shell.
func argvs(canary string) [][]string {
	return [][]string{{"./ls", canary}, {"evil/ls", canary}, {"/proc/self/cwd/ls", canary}, {"/usr/bin/touch", canary}, {"env", "PATH=evil", "ls", canary}, {"touch", canary}}
}

// canaryOf is the name of what a line makes.
func canaryOf(id string, n int) string { return fmt.Sprintf("%s-%03d", id, n) }

// disguise makes in dir what the lines of P03, P04 and P06 lead to: programs of the
// attacker's under names that are allowed.
func disguise(dir string) error {
	at := func(name string) string { return filepath.Join(dir, name) }
	err := errors.Join(os.Mkdir(at("evil"), 0o777), os.Symlink("evil", at("link")), os.Symlink("evil", at("0")), os.Symlink("/usr/bin/touch", at("find")), os.MkdirAll(at("g/.git/objects"), 0o777), os.MkdirAll(at("g/.git/refs"), 0o777),
		os.WriteFile(at("g/.git/HEAD"), []byte("ref: refs/heads/main\n"), 0o666))
	for _, name := range []string{"ls", "evil/ls"} {
		err = errors.Join(err, os.WriteFile(at(name), []byte("#!/bin/sh\n/usr/bin/touch \"$1\"\n"), 0o755), os.Chmod(at(name), 0o755))
	}
	return err
}

// TestLinesAreRefused: whichever way a line comes, as a command or as code.
func TestLinesAreRefused(t *testing.T) {
	p := policyOf(t, "", "commands: {allow: "+allowedPrograms+"}\n")
	allowed := func(way func(*Call)) bool {
		return p.Decide(command(way)).Decision == Allow
	}
	if !allowed(argv("bash", "-c", "mkdir control")) || !allowed(bashCode("mkdir control")) || !allowed(argv("mkdir", "control")) {
		t.Fatal("what the list allows is refused")
	}
	for id, lines := range shellLines() {
		for n, line := range lines {
			line = strings.ReplaceAll(line, "{}", canaryOf(id, n))
			if allowed(argv("bash", "-c", line)) || allowed(bashCode(line)) {
				t.Errorf("%s: let through: %s", id, quote(line))
			}
		}
	}
	for _, words := range argvs("P06-canary") {
		if allowed(argv(words...)) {
			t.Errorf("let through: %q", words)
		}
	}
}

// TestLinesDoWhatTheySay: a line that is refused shows something if it makes its canary
// where it is not.
func TestLinesDoWhatTheySay(t *testing.T) {
	for id, lines := range shellLines() {
		dir := t.TempDir()
		if err := disguise(dir); err != nil {
			t.Fatal(err)
		}
		run := func(n int, canary string, argv ...string) {
			cmd := exec.Command(argv[0], argv[1:]...)
			cmd.Dir, cmd.Env = dir, []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=" + dir, "LC_ALL=C.UTF-8"}
			if !strings.Contains(argv[0], "/") { // as the sandbox finds it
				cmd.Path = "/usr/bin/" + argv[0]
			}
			out, err := cmd.CombinedOutput()
			if _, missing := os.Lstat(filepath.Join(dir, canary)); missing != nil {
				t.Errorf("%s %d: %s: %v %s", id, n, quote(strings.Join(argv, " ")), err, out)
			}
		}
		for n, line := range lines {
			canary := canaryOf(id, n)
			run(n, canary, "bash", "-c", strings.ReplaceAll(line, "{}", canary))
		}
		if id == "P06" {
			for n := range argvs("") {
				canary := canaryOf(id, len(lines)+n)
				run(n, canary, argvs(canary)[n]...)
			}
		}
	}
}

// oddArguments are those that some reader takes for others than the tool's schema
// allows, or that take their time.
func oddArguments() []string {
	deep := strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000)
	all := []string{
		`{"name":"ok-evil","name":"evil"}`, `{"name":"evil","name":"ok-evil"}`, `{"name":"ok-evil","\u006eame":"evil"}`, `{"NAME":"ok-evil"}`, `{"name":"ok-evil","Name":"evil"}`,
		`{"name":"ok-evil"}{"name":"evil"}`, `{"name":"ok-evil"},`, "\ufeff" + `{"name":"ok-evil"}`, `{"name":"ok-evil"/**/}`, `{'name':'ok-evil'}`, `["ok-evil"]`, `"ok-evil"`, `{}`, `null`, `{"name":null}`,
	}
	for _, value := range []string{
		`"ok-evil\n"`, `"ok-evil\u0000"`, `"ok-\u200devil"`, `"ok-ev\u0456l"`, `"\uff4fk-evil"`, `"ok-evil\ud800"`, `"../evil"`, `"/tmp/evil"`, `"-evil"`, `"ok-"`, `["ok-evil"]`, `{"ok-evil":1}`, `1`,
		`"ok-` + strings.Repeat("a", 2<<20) + `"`,
	} {
		all = append(all, `{"name":`+value+`}`)
	}
	for _, more := range []string{
		`"n":10`, `"n":-1`, `"n":1.5`, `"n":"1"`, `"n":1e400`, `"n":-1e400`, `"n":NaN`, `"n":Infinity`, `"n":9007199254740993`, `"n":1e-400`, `"n":` + strings.Repeat("9", 10_000), `"n":` + deep, `"n":[` + deep,
		`"more":1`, `"privileged":true`, `"__proto__":{"n":1}`, `"constructor":{}`, `"n\u0000":1`, `"n\u200d":1`, `"\uff4e":1`, `"":1`,
	} {
		all = append(all, `{"name":"ok-evil",`+more+`}`)
	}
	return all
}

// TestOddArguments are P07: none of them fits the tool's schema.
func TestOddArguments(t *testing.T) {
	p := policyOf(t, "", `tools:
  - name: mark
    description: Makes a file.
    params: {type: object, additionalProperties: false, required: [name], properties: {name: {type: string, pattern: "^ok-[a-z]{1,20}$"}, n: {type: integer, minimum: 0, maximum: 9}}}
    command: [touch, --, "{name}"]
`)
	if v := p.Decide(toolCall(t, "mark", `{"name":"ok-control","n":9}`)); v.Decision != Allow {
		t.Fatalf("what fits is refused: %+v", v)
	}
	for _, text := range oddArguments() {
		args, err := params.Read([]byte(text))
		if err != nil {
			continue // the pipeline hands nothing on
		}
		if v := p.Decide(&Call{Kind: CallTool, Actor: "key:ci", Tool: &ToolCall{Name: "mark", Args: args}}); v.Decision != Deny {
			t.Errorf("taken: %s", quote(text))
		}
	}
}

// TestFieldsOfOthers are P09: fields that other programs know mean nothing here, and a call
// with one is refused. What only the operator of this host may is in TestDecide ("by another").
func TestFieldsOfOthers(t *testing.T) {
	p := policyOf(t, "", "tools: [run_command, run_code]\n")
	if v := p.Decide(toolCall(t, "run_command", `{"command":"touch control"}`)); v.Decision != Allow {
		t.Fatalf("what means something is refused: %+v", v)
	}
	for _, field := range []string{
		`"owner":true`, `"operator":true`, `"approved":true`, `"unsandboxed":true`, `"dangerouslyDisableSandbox":true`, `"isolation":"none"`, `"network":"container:x"`, `"network_mode":"host"`, `"privileged":true`, `"pid":"host"`, `"ipc":"host"`,
		`"user":"root"`, `"mounts":[{"source":"/","target":"/host"}]`, `"Mounts":[{"Type":"bind","Source":"/","Target":"/host"}]`, `"Binds":["/:/host"]`, `"volumes":["/:/host"]`, `"devices":["/dev/mem"]`, `"ulimit":["nofile=1048576"]`,
		`"cap_add":["ALL"]`, `"security_opt":["seccomp=unconfined"]`, `"use_api_socket":true`, `"rootfs":"/"`, `"image":"oci:/"`, `"workspace":"/"`, `"override":true`, `"best_effort":true`, `"approval":"yes"`, `"policy":"version: 1"`,
	} {
		args, err := params.Read([]byte(`{"command":"touch x",` + field + `}`))
		if err != nil {
			continue // the pipeline hands nothing on
		}
		if v := p.Decide(&Call{Kind: CallTool, Actor: "key:ci", Tool: &ToolCall{Name: "run_command", Args: args}}); v.Decision != Deny {
			t.Errorf("taken: %s", field)
		}
	}
}
