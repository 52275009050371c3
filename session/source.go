// SPDX-License-Identifier: Apache-2.0

package session

import (
	"bytes"
	"debug/elf"
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/caisson-run/caisson/interpreter"
	"github.com/caisson-run/caisson/sandbox"
)

// MaxSource is the largest source that is run, in bytes. More is data, and
// belongs into a mount.
const MaxSource = 16 << 20

// Source is code that a call brings along.
type Source struct {
	Name     string // for messages and for the language: "analyse.py", "-"; may be empty
	Language string // a name of Languages; empty asks the shebang, then Name
	Code     []byte
	// Cell says that it runs in a context: Language is one of package interpreter, or the
	// name of a kernel. Context is its ID; empty is the default one of the language.
	// MakeContext makes it of Language where it is not there.
	Cell, MakeContext bool
	Context           string
}

// ReadSource reads code, and no more of it than one byte over MaxSource, by which it is
// refused when it is planned. Errors are ErrInvalid with a hint.
func ReadSource(name string, r io.Reader) ([]byte, error) {
	code, err := io.ReadAll(io.LimitReader(r, MaxSource+1))
	if err != nil {
		return nil, &sandbox.Error{Op: "read " + sandbox.Quoted(name), Kind: sandbox.ErrInvalid, Problem: "the source cannot be read", Cause: err}
	}
	return code, nil
}

// program is what a source is run with.
type program struct {
	language string
	Argv     []string // the script's path follows, unless direct
	ext      string   // for a file that has no name of its own
	direct   bool     // the file itself is the program
}

// plan judges a source and finds out how it is run.
func (s Source) plan() (program, error) {
	op := "source " + sandbox.Quoted(s.Name)
	refuse := func(problem, hint string) (program, error) {
		return program{}, &sandbox.Error{Op: op, Kind: sandbox.ErrInvalid, Problem: problem, Hint: hint}
	}
	if len(s.Code) > MaxSource {
		return refuse("it is larger than 16 MiB", "put data into a file of its own and show it with --mount")
	}
	if isELF(s.Code) {
		if s.Language != "" {
			return refuse("it is a compiled program and not "+s.Language, "drop --lang")
		}
		return program{language: "binary", direct: true}, nil
	}
	if i := bytes.IndexByte(s.Code, 0); i >= 0 {
		return refuse(fmt.Sprintf("it is not source code: byte %d is NUL", i), "show data with --mount; name a program's source or an ELF file")
	}
	if s.Cell {
		return cellProgram(s.Language)
	}
	if s.Language != "" {
		l, err := languageNamed(s.Language)
		if err != nil {
			return program{}, err
		}
		return program{language: l.name, Argv: l.argv, ext: l.ext[0]}, nil
	}
	if argv, ok := shebang(s.Code); ok {
		p := program{language: argv[0], Argv: argv}
		if l, ok := languageOfInterpreter(argv[0]); ok {
			p.language, p.ext = l.name, l.ext[0]
		}
		return p, nil
	}
	if l, ok := languageOf(s.Name); ok {
		return program{language: l.name, Argv: l.argv, ext: l.ext[0]}, nil
	}
	if path.Ext(s.Name) == ".go" {
		return refuse("Go is compiled, and takes a command", "show it and run that: caisson run --toolchain /usr/local/go --memory 1GiB --mount "+s.Name+" -- go run "+path.Base(s.Name))
	}
	return refuse("its language cannot be told from its name, and it has no #! line", "name it with --lang: "+strings.Join(Languages()[:6], ", ")+" and more")
}

// cellProgram is what a policy hears that a cell is run with. The agent inside finds the kernel.
func cellProgram(language string) (program, error) {
	switch language {
	case interpreter.TypeScript:
		return program{language: language, Argv: []string{"node"}, ext: ".ts"}, nil
	case interpreter.Python, interpreter.JavaScript, interpreter.Bash:
		l, err := languageNamed(language)
		return program{language: language, Argv: l.argv, ext: l.ext[0]}, err
	}
	return program{language: language, Argv: []string{language}}, nil
}

// isELF says whether code is a program of this platform's format. What its
// machine is, the sandbox's loader judges.
func isELF(code []byte) bool { return bytes.HasPrefix(code, []byte(elf.ELFMAG)) }
