// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/term"

	"github.com/caisson-run/caisson/sandbox"
)

// replInput reads pieces of code from a terminal, line by line.
type replInput struct {
	in, out *os.File
	term    *term.Terminal
	keys    *interruptible
	whole   func(code string) bool
	words   map[string]bool // that Tab completes
}

// interruptible is what is typed, in which Ctrl-C takes the line away and ends it: the terminal
// library reads it as the end of all.
type interruptible struct {
	in     io.Reader
	rest   []byte
	pushed bool // Ctrl-C was typed
}

func (k *interruptible) Read(p []byte) (int, error) {
	if len(k.rest) == 0 {
		b := make([]byte, len(p))
		n, err := k.in.Read(b)
		if n == 0 {
			return 0, err
		}
		k.rest = b[:n]
	}
	const ctrlC, kill = 3, "\x05\x15\r" // to the end, delete all before it, return
	n := bytes.IndexByte(k.rest, ctrlC)
	if n == 0 {
		k.rest, k.pushed = append([]byte(kill), k.rest[1:]...), true
		n = bytes.IndexByte(k.rest, ctrlC)
	}
	if n < 0 {
		n = len(k.rest)
	}
	n = copy(p, k.rest[:n])
	k.rest = k.rest[n:]
	return n, nil
}

func newReplInput(in, out *os.File, language string) *replInput {
	r := &replInput{in: in, out: out, keys: &interruptible{in: in}, whole: wholeIn(language), words: map[string]bool{}}
	for _, w := range keywords[language] {
		r.words[w] = true
	}
	r.term = term.NewTerminal(struct {
		io.Reader
		io.Writer
	}{r.keys, out}, "")
	r.term.AutoCompleteCallback = r.complete
	h := openHistory()
	for i := range h.Len() {
		r.learn(h.At(i))
	}
	r.term.History = h
	return r
}

// read is the next piece of code. The error is io.EOF at the end.
func (r *replInput) read() (string, error) {
	before, err := term.MakeRaw(int(r.in.Fd()))
	if err != nil {
		return "", &sandbox.Error{Op: "repl", Kind: sandbox.ErrUnavailable, Problem: "the terminal cannot be put into raw mode", Hint: "hand the code over by a pipe", Cause: err}
	}
	r.term.SetBracketedPasteMode(true)
	defer func() {
		r.term.SetBracketedPasteMode(false)
		term.Restore(int(r.in.Fd()), before)
	}()
	if cols, rows, err := term.GetSize(int(r.out.Fd())); err == nil && cols > 0 {
		r.term.SetSize(cols, rows)
	}
	var code strings.Builder
	for {
		prompt := ">>> "
		if code.Len() > 0 {
			prompt = "... "
		}
		r.term.SetPrompt(prompt)
		r.keys.pushed = false
		line, err := r.term.ReadLine()
		pasted := errors.Is(err, term.ErrPasteIndicator)
		switch {
		case r.keys.pushed:
			code.Reset()
			continue
		case err != nil && !pasted:
			return "", err
		case !pasted && strings.TrimSpace(line) == "" && code.Len() == 0:
			continue
		}
		r.learn(line)
		blank := strings.TrimSpace(line) == ""
		code.WriteString(line + "\n")
		if !pasted && (blank || r.whole(code.String())) {
			return code.String(), nil
		}
	}
}

func (r *replInput) close() {
	if h, ok := r.term.History.(*history); ok {
		h.save()
	}
}

// wordRune says whether a character can be part of a name.
func wordRune(c rune) bool { return c == '_' || c == '$' || unicode.IsLetter(c) || unicode.IsDigit(c) }

// maxWords is how many words Tab knows.
const maxWords = 10_000

// learn takes the words of a line down, for complete.
func (r *replInput) learn(line string) {
	for _, w := range strings.FieldsFunc(line, func(c rune) bool { return !wordRune(c) }) {
		if len(w) > 2 && len(r.words) < maxWords {
			r.words[w] = true
		}
	}
}

// complete completes the word before the cursor, as far as all that begin so agree. At the
// beginning of a line Tab indents.
func (r *replInput) complete(line string, pos int, key rune) (string, int, bool) {
	if key != '\t' {
		return "", 0, false
	}
	start := pos
	for start > 0 && wordRune(rune(line[start-1])) {
		start--
	}
	word := line[start:pos]
	if word == "" {
		return line[:pos] + "    " + line[pos:], pos + 4, true
	}
	rest, found := "", false
	for w := range r.words {
		tail, ok := strings.CutPrefix(w, word)
		switch {
		case !ok || tail == "":
		case !found:
			rest, found = tail, true
		default:
			n := 0
			for n < len(rest) && n < len(tail) && rest[n] == tail[n] {
				n++
			}
			rest = rest[:n]
		}
	}
	return line[:pos] + rest + line[pos:], pos + len(rest), true
}

// maxHistory is how many lines are kept, and how many bytes of them.
const (
	maxHistory      = 1000
	maxHistoryBytes = 256 << 10
)

// history is the lines that were typed, newest last, over sessions.
type history struct {
	file  string // empty: they are not kept
	lines []string
}

// openHistory reads what was kept. What cannot be read is none.
func openHistory() *history {
	h := &history{}
	dir, err := os.UserCacheDir()
	if err != nil {
		return h
	}
	h.file = filepath.Join(dir, "caisson", "repl_history")
	b, err := os.ReadFile(h.file)
	if err == nil && len(b) <= maxHistoryBytes {
		for line := range strings.Lines(string(b)) {
			h.Add(strings.TrimSuffix(line, "\n"))
		}
	}
	return h
}

// Add implements term.History.
func (h *history) Add(line string) {
	if strings.TrimSpace(line) == "" || len(h.lines) > 0 && h.lines[len(h.lines)-1] == line || strings.ContainsFunc(line, func(c rune) bool { return c != '\t' && !unicode.IsPrint(c) }) {
		return
	}
	h.lines = append(h.lines, line)
	if n := len(h.lines) - maxHistory; n > 0 {
		h.lines = slices.Delete(h.lines, 0, n)
	}
}

// Len implements term.History.
func (h *history) Len() int { return len(h.lines) }

// At implements term.History.
func (h *history) At(i int) string { return h.lines[len(h.lines)-1-i] }

// save keeps the lines for the next session, for this user alone. It is a convenience: where it
// cannot be done there is none.
func (h *history) save() {
	if h.file == "" || len(h.lines) == 0 {
		return
	}
	text := strings.Join(h.lines, "\n") + "\n"
	if len(text) > maxHistoryBytes {
		text = text[len(text)-maxHistoryBytes:]
		_, text, _ = strings.Cut(text, "\n")
	}
	if os.MkdirAll(filepath.Dir(h.file), 0o700) == nil {
		next := h.file + ".new"
		if os.WriteFile(next, []byte(text), 0o600) == nil {
			_ = os.Rename(next, h.file)
		}
	}
}
