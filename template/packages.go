// SPDX-License-Identifier: Apache-2.0

package template

import (
	"regexp"
	"strings"
	"sync"
)

// manager installs packages. Their names are words of its argv, never text of a shell, and
// none can be an option, a file or an address.
type manager struct {
	name    string // the key in template.yaml, and the preset of the network
	names   pattern
	example string
	argv    []string
	env     []string // of the step alone: NAME, VALUE
}

var managers = [...]manager{
	{
		name: "apt", example: "ffmpeg or ffmpeg=7:7.1.1-1",
		names: lazy(`^[a-z0-9]([a-z0-9+.-]*[a-z0-9+.])?(:[a-z0-9]+)?(=[A-Za-z0-9][A-Za-z0-9.+:~-]*|/[a-z0-9][a-z0-9-]*)?$`),
		argv: []string{
			"/bin/sh", "-ec",
			`apt-get update; apt-get install --yes --no-install-recommends -- "$@"; apt-get clean; rm -rf /var/lib/apt/lists/*`, "apt",
		},
		env: []string{"DEBIAN_FRONTEND", "noninteractive"},
	},
	{
		name: "pip", example: "numpy or numpy==2.4.1",
		names: lazy(`^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?(\[[A-Za-z0-9._,-]+\])?(` + pipVersion + `(,` + pipVersion + `)*)?$`),
		argv:  []string{"python3", "-m", "pip", "install", "--no-cache-dir", "--"},
		// What a distribution's pip refuses (PEP 668) is what a template is for. A variable,
		// because a pip that knows no such rule knows no such option either.
		env: []string{"PIP_BREAK_SYSTEM_PACKAGES", "1", "PIP_ROOT_USER_ACTION", "ignore", "PIP_DISABLE_PIP_VERSION_CHECK", "1"},
	},
	{
		name: "npm", example: "typescript, @scope/name or typescript@5.9",
		names: lazy(`^(@[a-z0-9~][a-z0-9._~-]*/)?[a-z0-9~][a-z0-9._~-]*(@[\^~]?[A-Za-z0-9][A-Za-z0-9.+-]*)?$`),
		argv:  []string{"/bin/sh", "-ec", `npm install --global --no-audit --no-fund -- "$@"; npm cache clean --force`, "npm"},
	},
}

const pipVersion = `(===|==|~=|!=|>=|<=|>|<)[A-Za-z0-9][A-Za-z0-9.*+!_-]*`

// lazy compiles when it is first needed: few runs build a template.
func lazy(expr string) pattern {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })
}

func (m *manager) check(s string) error {
	if len(s) > 256 || !m.names.MatchString(s) {
		return invalid("write "+m.example+"; what needs more goes to run", "%s is no name of a package", quote(s))
	}
	return nil
}

func (m *manager) step(packages []string, env variables, line int) Step {
	for i := 0; i < len(m.env); i += 2 {
		env = env.with(m.env[i], m.env[i+1])
	}
	return Step{Text: m.name + " " + strings.Join(packages, " "), Line: line, Env: env, Argv: append(m.argv[:len(m.argv):len(m.argv)], packages...)}
}
