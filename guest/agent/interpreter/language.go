// SPDX-License-Identifier: Apache-2.0

package interpreter

import (
	_ "embed" // the kernels
	"encoding/json"
	"fmt"
	"os"
	"path"
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
	//go:embed kernels/nodechild.js
	nodeChild string
	//go:embed kernels/noderandom.js
	nodeRandom string
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

// programs are what our kernels run in.
var programs = map[string]string{interpreter.Python: "python3", interpreter.JavaScript: "node", interpreter.Bash: "bash"}

// canStart says what a kernel of ours lacks, and starts nothing.
func canStart(u User, program, dir string, own map[string]string) error {
	return u.As(func() error {
		if info, err := os.Stat(dir); err != nil {
			return &fault{ErrInvalid, err.Error()}
		} else if !info.IsDir() {
			return &fault{ErrInvalid, fmt.Sprintf("%.200q is no directory", dir)}
		}
		for in := range strings.SplitSeq(variable(u.Environ(own), "PATH"), ":") {
			if in = path.Join(in, program); !path.IsAbs(in) {
				in = path.Join(dir, in)
			}
			if info, err := os.Stat(in); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
				return nil
			}
		}
		return &fault{ErrUnsupported, program + ": not found"}
	})
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
		return launchLines(u, p, "(function () {"+nodeKernel+nodeChild+nodeRandom+"\n})()\n") // with names of its own
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

// variable is the value of a variable in env; the last one counts.
func variable(env []string, name string) (value string) {
	for _, e := range env {
		if v, ok := strings.CutPrefix(e, name+"="); ok {
			value = v
		}
	}
	return value
}
