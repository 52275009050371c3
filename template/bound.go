// SPDX-License-Identifier: Apache-2.0

package template

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/caisson-run/caisson/sandbox"
)

const (
	maxFile   = 1 << 20     // bytes of a Dockerfile or template.yaml
	maxSteps  = 1000        // instructions of a file, and steps
	maxWord   = 128<<10 - 1 // bytes of one argument of a program: Linux's MAX_ARG_STRLEN less its NUL
	maxValue  = 64 << 10    // bytes of one variable after expansion
	maxNames  = 1000        // variables, labels and ports each
	maxNested = 100         // ${…${…}…}
	maxWork   = 64 << 20    // bytes that all expansions together can come to
	maxListed = 500         // entries of a list in template.yaml
	maxText   = 200         // bytes of Step.Text
	maxShown  = 300         // bytes of a message that others have written
)

// fault is one for people, at a place such as Dockerfile:12.
func fault(kind error, name string, line int, hint, format string, args ...any) *sandbox.Error {
	return &sandbox.Error{
		Op: name + ":" + strconv.Itoa(max(line, 1)), Kind: kind,
		Problem: sandbox.Clip(fmt.Sprintf(format, args...), maxShown), Hint: sandbox.Clip(hint, maxShown),
	}
}

func invalid(hint, format string, args ...any) *sandbox.Error {
	return &sandbox.Error{Kind: sandbox.ErrInvalid, Problem: fmt.Sprintf(format, args...), Hint: hint}
}

// quote shows what a file has.
func quote(s string) string { return strconv.Quote(sandbox.Clip(s, 60)) }

// checkText refuses what no reader of a file expects in it; line is where it is.
func checkText(src []byte) (line int, problem, hint string) {
	if len(src) > maxFile {
		return 1, fmt.Sprintf("it is longer than %d MiB", maxFile>>20), "move long texts to files and copy those"
	}
	line = 1
	for i := 0; i < len(src); {
		r, n := utf8.DecodeRune(src[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			return line, "it is not UTF-8 text", "save it as plain UTF-8 text"
		case r == '\n':
			line++
		case r != '\t' && r != '\r' && unicode.IsControl(r), unicode.Is(unicode.Bidi_Control, r):
			return line, fmt.Sprintf("it has a character that cannot be seen, %U", r), "drop the character"
		}
		i += n
	}
	return 0, "", ""
}

// checkNesting refuses a Dockerfile whose expansions are nested so deep that reading them
// takes time with the square of their length. It takes no notice of quotes: a file comes to
// the bound only if it leaves a hundred braces open.
func checkNesting(src []byte) (line int) {
	deep := 0
	for i := 0; i < len(src); i++ {
		switch {
		case src[i] == '}' && deep > 0:
			deep--
		case src[i] == '{' && i > 0 && src[i-1] == '$':
			if deep++; deep > maxNested {
				return 1 + bytes.Count(src[:i], []byte("\n"))
			}
		}
	}
	return 0
}

// oneLine is an instruction as progress shows it.
func oneLine(s string) string {
	return sandbox.Clip(strings.Join(strings.Fields(sandbox.Clip(s, 4*maxText)), " "), maxText)
}

// checked is d, if it keeps to what a kernel takes.
func (d *Definition) checked(name string) (*Definition, error) {
	if err := d.check(name); err != nil {
		return nil, err
	}
	return d, nil
}

func (d *Definition) check(name string) error {
	n := 0
	for _, stage := range d.Stages {
		for _, s := range stage.Steps {
			if n++; n > maxSteps {
				return fault(sandbox.ErrInvalid, name, s.Line, "build on a template that has the first of them", "it has more than %d steps", maxSteps)
			}
			if err := s.check(); err != nil {
				return fault(sandbox.ErrInvalid, name, s.Line, err.Hint, "%s", err.Problem)
			}
		}
	}
	c := &d.Config
	words := slices.Concat(c.Env, c.Entrypoint, c.Cmd, c.Shell, c.Ports, []string{c.Dir, c.User, c.Start, c.Ready, d.Warmup})
	for k, v := range c.Labels {
		words = append(words, k, v)
	}
	if err := checkWords(words); err != nil {
		return fault(sandbox.ErrInvalid, name, 1, err.Hint, "%s", err.Problem)
	}
	return nil
}

func (s *Step) check() *sandbox.Error {
	words := slices.Concat(s.Env, s.Argv, []string{s.Dir, s.User, s.MakeDir})
	if c := s.Copy; c != nil {
		words = slices.Concat(words, c.Sources, []string{c.Target, c.Chown, c.Chmod, c.FromImage, c.Upload})
	}
	return checkWords(words)
}

func checkWords(words []string) *sandbox.Error {
	for _, w := range words {
		switch {
		case strings.ContainsRune(w, 0):
			return invalid("drop it", "a value has a NUL byte")
		case len(w) > maxWord:
			return invalid("put it in a file, copy that and run it", "a text of %d bytes is longer than the %d that a program can be given", len(w), maxWord)
		}
	}
	return nil
}
