// SPDX-License-Identifier: Apache-2.0

package shell

import (
	"strings"
	"sync"
)

// Most lines that agents write are plain: words that have no character with a meaning,
// or are one text in quotes, and between commands ; && || | or the end of a line. They
// are read here, at a fraction of what the parser takes. Whatever is anything else is
// the parser's, all of it. TestPlain and FuzzPlain hold that both come to the same.

// kindOf says what a character is in a plain line; 0 is one that no such line has.
func kindOf(c byte) int {
	switch {
	case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '+' <= c && c <= ':', c == '=', c == '_', c == '%', c == '@':
		return ofWord // + , - . / digits :
	case c == ' ', c == '\t':
		return blank
	case c == ';', c == '&', c == '|', c == '\n':
		return between
	case c == '\'', c == '"':
		return quote
	}
	return 0
}

const (
	ofWord = 1 + iota
	blank
	between
	quote
)

// plainCommand is a command of a plain line.
type plainCommand struct {
	words []Word
	piped bool // it reads what the one before it writes
}

// plainLists are lists of commands that can be used again.
var plainLists = sync.Pool{New: func() any { return new([]plainCommand) }}

// plainly judges a plain line; false is that it is none.
func (s *scope) plainly(text string) bool {
	list, before := plainLists.Get().(*[]plainCommand), s.spare
	all, ok := s.plain(text, (*list)[:0])
	if ok {
		s.coming = len(all)
		for _, c := range all {
			in := stdin{outside: true}
			if c.piped {
				in = stdin{what: "a pipe"}
			}
			s.simple(c.words, nil, in)
		}
	} else {
		s.spare = before
	}
	if clear(all); cap(all) <= 10_000 { // they would keep the text
		*list = all
		plainLists.Put(list)
	}
	return ok
}

// plain reads a plain line into all; false is that it is none.
func (s *scope) plain(text string, all []plainCommand) (_ []plainCommand, ok bool) {
	n, piped, open := 0, false, false // words of the command; open: one has to follow
	end := func() {
		all = append(all, plainCommand{s.words(n), piped})
		n, piped = 0, false
	}
	for i, line, start := 0, 1, 0; i < len(text); {
		switch c := text[i]; kindOf(c) {
		case blank:
			i++
		case ofWord, quote:
			word, next, ok := plainWord(text, i, n == 0)
			if !ok {
				return all, false
			}
			s.grow(n)
			s.spare[n] = Word{Text: word, Static: true, At: s.plainPlace(line, i-start+1)}
			n, open, i = n+1, false, next
		case between:
			two := i+1 < len(text) && kindOf(text[i+1]) == between && text[i+1] != '\n'
			switch {
			case n == 0 && (c != '\n' || open), two && (text[i+1] != c || c == ';'), !two && c == '&':
				return all, false
			case n > 0:
				end()
			}
			piped, open = c == '|' && !two, c == '|' || c == '&'
			if i++; two && c != '\n' {
				i++
			}
			if c == '\n' {
				line, start = line+1, i
			}
		default:
			return all, false
		}
	}
	if n > 0 {
		end()
	}
	return all, !open
}

// grow makes room for one more word behind the n that no command has yet.
func (s *scope) grow(n int) {
	if n < len(s.spare) {
		return
	}
	more := make([]Word, max(2*n, min(s.room, 64), 4))
	copy(more, s.spare[:n])
	s.spare = more
}

// plainWord is the word that begins at i, and where it ends. The first of a command is
// no assignment and no word of the shell's own.
func plainWord(text string, i int, first bool) (word string, end int, ok bool) {
	if q := text[i]; kindOf(q) == quote {
		n := strings.IndexByte(text[i+1:], q)
		if n < 0 {
			return "", 0, false
		}
		word, end = text[i+1:i+1+n], i+n+2
		for j := range len(word) {
			if c := word[j]; c < ' ' || c > '~' || q == '"' && (c == '$' || c == '\\' || c == '`') {
				return "", 0, false
			}
		}
	} else {
		for end = i + 1; end < len(text) && (kindOf(text[end]) == ofWord || text[end] == '~' && text[end-1] != '=' && text[end-1] != ':'); end++ {
		} // ~ means nothing within a word but behind = and :
		if word = text[i:end]; first && (strings.IndexByte(word, '=') >= 0 || ownWord(word)) {
			return "", 0, false
		}
	}
	if end == len(text) {
		return word, end, true
	}
	next := kindOf(text[end])
	return word, end, next == blank || next == between
}

// ownWord: words that begin something else than a command of words, to some shell.
func ownWord(word string) bool {
	switch word {
	case "if", "then", "elif", "else", "fi", "for", "foreach", "while", "until", "repeat", "do", "done", "end", "case", "esac", "select", "in", "function",
		"time", "coproc", "let", "declare", "typeset", "local", "export", "readonly", "nameref", "float", "integer", "nocorrect", "noglob", "@test":
		return true
	}
	return false
}

// plainPlace is a place, as far right as the parser counts.
func (s *scope) plainPlace(line, col int) Pos {
	switch {
	case s.base != nil:
		return *s.base
	case col > 1<<14-1:
		return Pos{line, 0}
	}
	return Pos{line, col}
}
