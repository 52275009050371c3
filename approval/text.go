// SPDX-License-Identifier: Apache-2.0

package approval

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// marks are what is odd about a text.
type marks int

const (
	hasControl marks = 1 << iota
	hasTurns
	hasUnseen
	hasBytes
	hasMixed
	hasLookalike
	hasStacked
	hasSpaces
)

// markWords say of each mark what it means, in the order of their bits.
var markWords = []string{
	"control characters, which could rewrite a terminal", "characters that turn the direction of text round",
	"characters that cannot be seen", "bytes that are no text", "letters of several alphabets in one word",
	"letters that look like others", "marks stacked on a letter", "unusual or many spaces",
}

func (m marks) words() []string {
	var out []string
	for i, w := range markWords {
		if m&(1<<i) != 0 {
			out = append(out, w)
		}
	}
	return out
}

// The brackets of what was not shown as it came. Both are shown by their number
// where they come in a text, so that no text can look like one of ours.
const openMark, closeMark = '⟨', '⟩'

// tabMark begins how a tab is shown at the beginning of a line, four columns wide.
const tabMark = '⇥'

// runSpaces is how many spaces in a row are shown as they are, and runLines how
// many empty lines: more would move what follows out of sight.
const runSpaces, runLines = 40, 3

// visible writes one line of text so that it is what it looks like: one
// character of the text is one character that can be seen, or its number in ⟨⟩.
// The answer has only printable characters that go from left to right, no line
// break, and no space at its end. What was written can be told from it exactly.
func visible(line string) (string, marks) {
	var b strings.Builder
	var m marks
	for _, w := range words(line) {
		s, found := w.visible()
		m |= found
		b.WriteString(s)
	}
	return b.String(), m
}

// word is a run of letters and digits, or of spaces, or one other character.
type word struct {
	text string
	kind int  // wordLetters, wordSpaces, wordOther
	last bool // nothing follows
}

const (
	wordLetters = iota
	wordSpaces
	wordOther
)

func words(s string) []word {
	var out []word
	for start := 0; start < len(s); {
		kind, end := -1, start
		for end < len(s) {
			r, n := utf8.DecodeRuneInString(s[end:])
			k := wordOther
			switch {
			case r == utf8.RuneError && n == 1:
			case r == ' ':
				k = wordSpaces
			case unicode.IsLetter(r) || unicode.IsDigit(r) || unicode.Is(unicode.M, r) && kind == wordLetters:
				k = wordLetters
			}
			if kind >= 0 && (k != kind || k == wordOther) {
				break
			}
			kind = k
			end += n
		}
		out = append(out, word{text: s[start:end], kind: kind})
		start = end
	}
	if len(out) > 0 {
		out[len(out)-1].last = true
	}
	return out
}

func (w word) visible() (string, marks) {
	switch {
	case w.kind == wordSpaces && (w.last || len(w.text) > runSpaces):
		return fmt.Sprintf("%c%d spaces%c", openMark, len(w.text), closeMark), hasSpaces
	case w.kind == wordSpaces:
		return w.text, 0
	}
	var m marks
	if w.kind == wordLetters && !ascii(w.text) {
		if mixed(w.text) {
			m = hasMixed
		} else if imitates(w.text) {
			m = hasLookalike
		}
	}
	deceptive := m != 0
	var b strings.Builder
	stacked, bare := 0, true // marks since the last letter; that is ASCII, or none
	for i := 0; i < len(w.text); {
		r, n := utf8.DecodeRuneInString(w.text[i:])
		isMark := unicode.Is(unicode.M, r)
		if isMark {
			stacked++
		} else {
			stacked, bare = 0, r < utf8.RuneSelf
		}
		found, ok := plain(r)
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, "%cbyte %02X%c", openMark, w.text[i], closeMark)
			m |= hasBytes
		case !ok:
			b.WriteString(number(r))
			m |= found
		case isMark && (bare || stacked > 2):
			b.WriteString(number(r))
			m |= hasStacked
		case deceptive && r >= utf8.RuneSelf:
			b.WriteString(number(r))
		default:
			b.WriteRune(r)
		}
		i += n
	}
	return b.String(), m
}

// number is r by its name or number.
func number(r rune) string {
	name := fmt.Sprintf("%U", r)
	switch r {
	case '\t':
		name = "TAB"
	case '\n':
		name = "LF"
	case '\r':
		name = "CR"
	case 0x1b:
		name = "ESC"
	case 0:
		name = "NUL"
	}
	return string(openMark) + name + string(closeMark)
}

// plain says whether r is shown as it is, and if not, what is odd about it.
func plain(r rune) (marks, bool) {
	switch {
	case r < utf8.RuneSelf:
		if r >= ' ' && r < 0x7f {
			return 0, true
		}
		return hasControl, false
	case r == openMark || r == closeMark || r == tabMark:
		return 0, false // it is not odd; see openMark
	case unicode.IsControl(r):
		return hasControl, false
	case rightToLeft(r) || unicode.Is(unicode.Bidi_Control, r):
		return hasTurns, false
	case unicode.Is(unicode.Z, r):
		return hasSpaces, false
	case blank(r) || !unicode.IsPrint(r):
		return hasUnseen, false
	case looksASCII(r) && (!unicode.IsLetter(r) || unicode.Is(unicode.Lm, r)), compatibility(r):
		return hasLookalike, false
	}
	return 0, true
}

// rightToLeft are the blocks whose characters turn the order of their
// neighbours on a screen round, without any control character.
func rightToLeft(r rune) bool {
	switch {
	case r >= 0x0590 && r <= 0x08ff, r >= 0xfb1d && r <= 0xfdff, r >= 0xfe70 && r <= 0xfeff,
		r >= 0x10800 && r <= 0x10fff, r >= 0x1e800 && r <= 0x1efff:
		return true
	}
	return false
}

// blank are letters and symbols with no ink.
func blank(r rune) bool {
	switch r {
	case 0x034f, 0x115f, 0x1160, 0x17b4, 0x17b5, 0x2800, 0x3164, 0xffa0, 0x1d159:
		return true
	}
	return r >= 0xfe00 && r <= 0xfe0f || r >= 0xe0000 && r <= 0xe0fff || r >= 0x180b && r <= 0x180f
}

// compatibility says of r that it is another way to write ASCII: fullwidth and
// mathematical letters, ligatures, one dot leader.
func compatibility(r rune) bool {
	s := norm.NFKC.String(string(r))
	return s != string(r) && strings.ContainsFunc(s, func(r rune) bool { return r > ' ' && r < 0x7f })
}

func ascii(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// lineWidth is how many columns of text a line has. Longer ones are broken here,
// and the break marked, so that no terminal breaks them and what follows stands
// where a line of ours could.
const lineWidth = 96

// The beginnings of lines: of a line of the text, and of one that goes on.
const (
	gutter     = "│ "
	gutterMore = "┊ "
)

// lines writes a text line by line.
func lines(text string) ([]string, marks) {
	var out []string
	var m marks
	empty := 0
	flush := func() {
		if empty > runLines {
			out = append(out, fmt.Sprintf("%s%c%d empty lines%c", gutter, openMark, empty, closeMark))
			m |= hasSpaces
		} else {
			for range empty {
				out = append(out, strings.TrimRight(gutter, " "))
			}
		}
		empty = 0
	}
	rest := strings.TrimSuffix(text, "\n")
	for more := true; more; {
		var line string
		line, rest, more = strings.Cut(rest, "\n")
		if line == "" {
			empty++
			continue
		}
		flush()
		tabs := len(line) - len(strings.TrimLeft(line, "\t"))
		shown, found := visible(line[tabs:])
		m |= found
		out = append(out, broken(strings.Repeat(string(tabMark)+"   ", tabs)+shown)...)
	}
	flush()
	return out, m
}

// broken breaks what visible gave into lines of lineWidth columns. Whatever is
// not ASCII counts as two, since some terminals show it so.
func broken(s string) []string {
	var out []string
	begin := gutter
	for {
		width, cut := 0, len(s)
		for i, r := range s {
			w := 1
			if r >= utf8.RuneSelf {
				w = 2
			}
			if width+w > lineWidth {
				cut = i
				break
			}
			width += w
		}
		if at := strings.LastIndex(s[:cut], string(openMark)); at > 0 && cut < len(s) && !strings.ContainsRune(s[at:cut], closeMark) {
			cut = at // a number stays whole
		}
		out = append(out, begin+s[:cut])
		if s = s[cut:]; s == "" {
			return out
		}
		begin = gutterMore
	}
}
