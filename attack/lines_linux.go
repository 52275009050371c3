// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"fmt"
	"strings"
)

// The lines of P01 to P06. Each starts touch, which no list allows, and which
// makes the canary {}; what else it starts the list allows, by name. Each makes
// its canary where nothing judges it (TestLinesDoWhatTheySay).

// allowedPrograms is the list.
const allowedPrograms = `[cat, echo, env, find, git, ls, mkdir, nice, sed, setsid, sort, tar, timeout, "true", xargs]`

func lines(id string) []string { return shellLines()[id] }

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
		// More commands than somebody counts.
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
