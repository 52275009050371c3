// SPDX-License-Identifier: Apache-2.0

package template

import (
	"strings"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
)

// runScript runs the script $1 of a heredoc that begins with #!, as the file $0. Nothing is
// left of it.
const runScript = `printf %s "$1" >"$0" && chmod 700 "$0" || exit; "$0"; s=$?; rm -f "$0"; exit $s`

// run is a RUN: a program, a line of shell, or heredocs.
func (f *dockerfile) run(c *instructions.RunCommand, n *parser.Node) error {
	argv := c.CmdLine
	if len(argv) == 0 || argv[0] == "" {
		return invalid("write RUN with a command", "RUN has nothing to run")
	}
	if c.PrependShell {
		line := argv[0]
		if len(c.Files) > 0 {
			line = withHeredocs(line, c.Files)
		}
		argv = f.shell(line)
		if len(c.Files) > 0 && strings.HasPrefix(line, "#!") {
			argv = []string{"/bin/sh", "-c", runScript, "/tmp/.caisson-run", line}
		}
	}
	f.step(n, Step{Argv: argv})
	return nil
}

// withHeredocs is what a shell reads: the text of the one heredoc that a RUN consists of, or
// the line with the heredocs below it.
func withHeredocs(line string, files []instructions.ShellInlineFile) string {
	if parser.MustParseHeredoc(line) != nil {
		if files[0].Chomp {
			return parser.ChompHeredocContent(files[0].Data)
		}
		return files[0].Data
	}
	var b strings.Builder
	b.WriteString(line)
	for _, file := range files {
		b.WriteString("\n" + file.Data + file.Name)
	}
	return b.String()
}
