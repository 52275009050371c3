// SPDX-License-Identifier: Apache-2.0

package interpreter

import (
	_ "embed" // the kernels
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/interpreter"
)

var (
	//go:embed kernels/python.py
	pythonKernel string
	//go:embed kernels/charts.py
	pythonCharts string
	//go:embed kernels/node.js
	nodeKernel string
)

// literal is s as a string of Python and of JavaScript.
func literal(s string) string {
	b, _ := json.Marshal(s) // a string can be written
	return string(b)
}

// pythonProgram is what a Python interpreter reads from its standard input: the kernel, in
// names of its own.
func pythonProgram() string {
	return "import builtins\nexec(compile(" + literal(pythonKernel) + ", '<kernel>', 'exec'), " +
		"{'__name__': 'caisson_kernel', '__builtins__': dict(vars(builtins)), 'CHARTS': " + literal(pythonCharts) + "})\n"
}

// launch starts the kernel of a language.
func launch(u User, language, dir string, own map[string]string) (*kernel, error) {
	env := u.Environ(own)
	p := Program{Env: env, Dir: dir}
	switch language {
	case interpreter.Python:
		p.Argv = []string{"python3", "-"}
		return launchLines(u, p, pythonProgram())
	case interpreter.JavaScript:
		// The checks are of what an interrupt in a callback leaves behind, and end the program.
		p.Argv = []string{"node", "--no-force-async-hooks-checks", "-"}
		return launchLines(u, p, "(function () {"+nodeKernel+"\n})()\n") // with names of its own
	case interpreter.Bash:
		t, theirs, err := newBashTalk()
		if err != nil {
			return nil, err
		}
		p.Argv, p.Stdin = bashArgv, theirs
		return startKernel(u, p, t, func() { theirs.Close() })
	}
	return launchJupyter(u, p, language)
}

func unsupported(language, why string) error {
	return &fault{ErrUnsupported, fmt.Sprintf("there is no kernel for %s here: %s", language, why)}
}

// launchLines starts a kernel of ours, which reads its program from fd 0.
func launchLines(u User, p Program, program string) (*kernel, error) {
	source, err := inMemory(program)
	if err != nil {
		return nil, err
	}
	defer source.Close()
	t, theirs, err := newLineTalk()
	if err != nil {
		return nil, err
	}
	p.Stdin, p.Files = source, theirs
	return startKernel(u, p, t, func() {
		for _, f := range theirs {
			f.Close()
		}
	})
}

// inMemory is a file without a name, at its beginning.
func inMemory(text string) (*os.File, error) {
	fd, err := unix.MemfdCreate("caisson-kernel", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	f := os.NewFile(uintptr(fd), "kernel")
	if _, err = f.WriteString(text); err == nil {
		_, err = f.Seek(0, 0)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// variable is the value of a variable in env.
func variable(env []string, name string) string {
	for _, e := range env {
		if v, ok := strings.CutPrefix(e, name+"="); ok {
			return v
		}
	}
	return ""
}
