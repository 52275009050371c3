// SPDX-License-Identifier: Apache-2.0

package template

import (
	"slices"
	"strings"
	"unicode"

	"github.com/moby/buildkit/frontend/dockerfile/shell"
)

// defaultPath is the PATH that docker gives to an image without one.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// variables are NAME=VALUE, each name once, in the order in which they were first set. A
// change makes a copy: steps keep what held for them.
type variables []string

// Get and Keys are what buildkit's lexer asks for.
func (v variables) Get(name string) (string, bool) {
	for _, nv := range v {
		if n, value, _ := strings.Cut(nv, "="); n == name {
			return value, true
		}
	}
	if name == "PATH" {
		return defaultPath, true
	}
	return "", false
}

// Keys are the names.
func (v variables) Keys() []string {
	names := make([]string, len(v))
	for i, nv := range v {
		names[i], _, _ = strings.Cut(nv, "=")
	}
	return names
}

func (v variables) with(name, value string) variables {
	i := slices.Index(v.Keys(), name)
	if i < 0 {
		return append(slices.Clip(v), name+"="+value)
	}
	v = slices.Clone(v)
	v[i] = name + "=" + value
	return v
}

// set is with, within bounds.
func (v variables) set(name, value string) (variables, error) {
	switch {
	case name == "" || strings.ContainsAny(name, "=\x00"):
		return nil, invalid("a name is letters, digits and _", "%s is no name of a variable", quote(name))
	case len(name) > 1000 || len(value) > maxValue:
		return nil, invalid("put it in a file", "variable %s is longer than %d KiB", quote(name), maxValue>>10)
	case len(v) >= maxNames:
		if _, ok := v.Get(name); !ok {
			return nil, invalid("", "there are more than %d variables", maxNames)
		}
	}
	return v.with(name, value), nil
}

// expander replaces variables as docker does, and bounds what that comes to.
type expander struct {
	escape rune
	work   int // bytes that expansions so far could have come to
}

func (e *expander) word(word string, v variables) (string, error) {
	if err := e.admit(word, v); err != nil {
		return "", err
	}
	out, _, err := shell.NewLex(e.escape).ProcessWord(word, v)
	return out, err
}

func (e *expander) words(word string, v variables) ([]string, error) {
	if err := e.admit(word, v); err != nil {
		return nil, err
	}
	return shell.NewLex(e.escape).ProcessWords(word, v)
}

// raw leaves quotes alone: a file's content, or what no shell has written.
func (e *expander) raw(text string, v variables) (string, error) {
	if err := e.admit(text, v); err != nil {
		return "", err
	}
	lex := shell.NewLex('\\')
	lex.SkipProcessQuotes = true
	out, _, err := lex.ProcessWord(text, v)
	return out, err
}

// admit refuses a word before it is expanded, by what it could come to: each $ by its
// longest variable, and that once more for each pattern around it, because
// ${A//?/$B} has B as often as A has characters.
func (e *expander) admit(word string, v variables) error {
	if checkNesting([]byte(word)) > 0 {
		return invalid("close the braces", "more than %d ${ are open", maxNested)
	}
	longest, patterns := references(word, v)
	bound := len(word)
	for range 1 + patterns {
		if bound *= 1 + longest; bound > maxWork {
			break
		}
	}
	if e.work += bound; e.work > maxWork {
		e.work = maxWork
		return invalid("write shorter values, or have a RUN compute them", "replacing its variables could come to more than %d MiB", maxWork>>20)
	}
	return nil
}

// references are the longest value of those that word names, and how deep its patterns
// (${A/x/y}, ${A#x}, ${A%x}) are nested; both may be more than that, never less.
func references(word string, v variables) (longest, patterns int) {
	// A brace that is quoted closes nothing. Where there may be one, none does.
	closes := !strings.ContainsAny(word, "'\"`\\")
	open, deep := []bool(nil), 0 // for each ${ whether it has a pattern
	for i := 0; i < len(word); i++ {
		if word[i] == '}' && closes && len(open) > 0 {
			if open[len(open)-1] {
				deep--
			}
			open = open[:len(open)-1]
		}
		if word[i] != '$' {
			continue
		}
		rest := word[i+1:]
		inner := strings.TrimPrefix(rest, "{")
		after := strings.TrimLeftFunc(inner, isName)
		longest = max(longest, v.length(inner[:len(inner)-len(after)]))
		if inner != rest {
			pattern := after != "" && strings.ContainsRune("/#%", rune(after[0]))
			if open = append(open, pattern); pattern {
				deep++
				patterns = max(patterns, deep)
			}
		}
	}
	return longest, patterns
}

// length is that of a variable's value. Of a name that the lexer may read as another one,
// such as $@ and $1x, it is that of the longest value.
func (v variables) length(name string) (n int) {
	if name != "" && !unicode.IsDigit([]rune(name)[0]) {
		value, _ := v.Get(name)
		return len(value)
	}
	for _, nv := range v {
		n = max(n, len(nv))
	}
	return n
}

func isName(r rune) bool { return r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r) }
