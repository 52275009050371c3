// SPDX-License-Identifier: Apache-2.0

package approval

import (
	"strconv"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// What an approver sees of texts that want to look like others.
func TestVisible(t *testing.T) {
	for _, c := range []struct {
		name, in, want string
		marks          marks
	}{
		{"plain", `git push origin 'a b' "$X" \n <U+202E>`, `git push origin 'a b' "$X" \n <U+202E>`, 0},
		{"accents", "café Übung наша Дата 東京タワー", "café Übung наша Дата 東京タワー", 0},
		{"colours", "\x1b[31mred\x1b[0m", "⟨ESC⟩[31mred⟨ESC⟩[0m", hasControl},
		{"clears the screen", "\x1b[2J\x1b[HApproved", "⟨ESC⟩[2J⟨ESC⟩[HApproved", hasControl},
		{"title, clipboard", "\x1b]0;x\a\x1b]52;c;eA==\x07", "⟨ESC⟩]0;x⟨U+0007⟩⟨ESC⟩]52;c;eA==⟨U+0007⟩", hasControl},
		{"8-bit escape", "\u009b31mx", "⟨U+009B⟩31mx", hasControl},
		{"raw 8-bit escape", "\x9b31mx", "⟨byte 9B⟩31mx", hasBytes},
		{"back over it", "rm -rf /\b\b\b\b\b\b\b\bls      ", "rm -rf /" + strings.Repeat("⟨U+0008⟩", 8) + "ls⟨6 spaces⟩", hasControl | hasSpaces},
		{"carriage return", "rm -rf /\rls", "rm -rf /⟨CR⟩ls", hasControl},
		{"line break", "ls\nrm", "ls⟨LF⟩rm", hasControl},
		{"delete", "a\x7fb\x00", "a⟨U+007F⟩b⟨NUL⟩", hasControl},
		{"turned round", "rm \u202e/ fr-\u202c", "rm ⟨U+202E⟩/ fr-⟨U+202C⟩", hasTurns},
		{"isolates", "a\u2066b\u2069", "a⟨U+2066⟩b⟨U+2069⟩", hasTurns},
		{"right to left letters", "rm -rf /א", "rm -rf /⟨U+05D0⟩", hasTurns},
		{"arabic", "x.com/\u0645", "x.com/⟨U+0645⟩", hasTurns},
		{"zero width", "git\u200b push\ufeff\u2060", "git⟨U+200B⟩ push⟨U+FEFF⟩⟨U+2060⟩", hasUnseen | hasTurns},
		{"joiner, soft hyphen", "a\u200db\u00adc", "a⟨U+200D⟩b⟨U+00AD⟩c", hasUnseen},
		{"tags", "ok\U000e0041\U000e007f", "ok⟨U+E0041⟩⟨U+E007F⟩", hasUnseen},
		{"fillers", "a\u3164b\u115fc\u2800d", "a⟨U+3164⟩b⟨U+115F⟩c⟨U+2800⟩d", hasUnseen},
		{"private use", "a\ue000", "a⟨U+E000⟩", hasUnseen},
		{"variation", "a\ufe0f", "a⟨U+FE0F⟩", hasUnseen},
		{"line separators", "a\u2028b\u2029c\u0085d", "a⟨U+2028⟩b⟨U+2029⟩c⟨U+0085⟩d", hasSpaces | hasControl},
		{"other spaces", "rm\u00a0-rf\u3000x\u2009y", "rm⟨U+00A0⟩-rf⟨U+3000⟩x⟨U+2009⟩y", hasSpaces},
		{"out of sight", "ls" + strings.Repeat(" ", 300) + "; rm", "ls⟨300 spaces⟩; rm", hasSpaces},
		{"no text", "a\xff\xfeb", "a⟨byte FF⟩⟨byte FE⟩b", hasBytes},
		{"half a surrogate", "\xed\xa0\x80", "⟨byte ED⟩⟨byte A0⟩⟨byte 80⟩", hasBytes},
		{"ours", "⟨ESC⟩ ⇥", "⟨U+27E8⟩ESC⟨U+27E9⟩ ⟨U+21E5⟩", 0},
		{"mixed", "p\u0430ypal.com", "p⟨U+0430⟩ypal.com", hasMixed},
		{"greek omicron", "g\u03bfogle.com", "g⟨U+03BF⟩ogle.com", hasMixed},
		{"all of another alphabet", "\u0441\u043e\u0440\u0443 x", "⟨U+0441⟩⟨U+043E⟩⟨U+0440⟩⟨U+0443⟩ x", hasLookalike},
		{"fullwidth", "ｒｍ", "⟨U+FF52⟩⟨U+FF4D⟩", hasLookalike},
		{"mathematical", "\U0001d42b\U0001d426", "⟨U+1D42B⟩⟨U+1D426⟩", hasLookalike},
		{"slashes", "a\u2044b\u2215c\u29f8d", "a⟨U+2044⟩b⟨U+2215⟩c⟨U+29F8⟩d", hasLookalike},
		{"dashes", "rm \u2212rf \u2013x", "rm ⟨U+2212⟩rf ⟨U+2013⟩x", hasLookalike},
		{"greek question mark", "a\u037eb", "a⟨U+037E⟩b", hasLookalike},
		{"one dot leader", "a\u2024com", "a⟨U+2024⟩com", hasLookalike},
		{"dotless i", "\u0131\u0131", "⟨U+0131⟩⟨U+0131⟩", hasLookalike},
		{"small capitals", "/data/f\u1d0f\u1d0f", "/data/f⟨U+1D0F⟩⟨U+1D0F⟩", hasLookalike},
		{"phonetic letters", "\ua731\u1d04p", "⟨U+A731⟩⟨U+1D04⟩p", hasLookalike},
		{"digits of another alphabet", "f\u0c66\u0e50", "f⟨U+0C66⟩⟨U+0E50⟩", hasMixed},
		{"capitals of Lisu", "\ua4e1\ua4e2", "⟨U+A4E1⟩⟨U+A4E2⟩", hasLookalike},
		{"Cherokee", "\uab83\uabaa", "⟨U+AB83⟩⟨U+ABAA⟩", hasLookalike},
		{"Cyrillic small capitals", "\u043a\u0442", "⟨U+043A⟩⟨U+0442⟩", hasLookalike},
		{"numbers in their own text", "१२३ กข๑", "१२३ กข๑", 0},
		{"stacked", "a\u0301\u0301\u0301x", "a⟨U+0301⟩⟨U+0301⟩⟨U+0301⟩x", hasStacked},
		{"a stroke through", "y\u0338es", "y⟨U+0338⟩es", hasStacked},
		{"a mark on nothing", "-\u0301", "-⟨U+0301⟩", hasStacked},
	} {
		got, m := visible(c.in)
		if got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
		if m&c.marks != c.marks || c.marks == 0 && m != 0 {
			t.Errorf("%s: got marks %q, want %q", c.name, m.words(), c.marks.words())
		}
	}
}

func TestLines(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"lines", "a\n\tb\n\n c\n", "│ a\n│ ⇥   b\n│\n│  c"},
		{"a heading of ours", "x\npolicy:\n  │ sha256:1", "│ x\n│ policy:\n│   │ sha256:1"},
		{"broken where we break", strings.Repeat("a", 100), "│ " + strings.Repeat("a", 96) + "\n┊ aaaa"},
		{"wide", strings.Repeat("東", 50), "│ " + strings.Repeat("東", 48) + "\n┊ 東東"},
		{"scrolled out of sight", "a" + strings.Repeat("\n", 200) + "b", "│ a\n│ ⟨199 empty lines⟩\n│ b"},
		{"carriage returns", "a\r\nb", "│ a⟨CR⟩\n│ b"},
	} {
		got, _ := lines(c.in)
		if strings.Join(got, "\n") != c.want {
			t.Errorf("%s: got\n%s\nwant\n%s", c.name, strings.Join(got, "\n"), c.want)
		}
	}
}

// FuzzView: whatever an agent writes, its approver gets printable characters from
// left to right, no line longer than said, each behind a gutter, and can tell
// from what is shown what was written.
func FuzzView(f *testing.F) {
	for _, s := range []string{
		"ls", "\x1b[2J", "rm \u202e/", "p\u0430ypal", "a\n\n\n\n\n\n\nb", "⟨ESC⟩⇥", "\t\tx \t", "x   ", strings.Repeat(" ", 50) + "y",
		"a\u0301\u0301", "\xff\xc0\x80", "אבג", "ｒｍ", "\u3164", "🏴\U000e0067", strings.Repeat("é", 200), "\r\n\v\f\u0085\u2028", "⟨3 spaces⟩",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, _ := lines(s)
		for _, l := range got {
			if !utf8.ValidString(l) || !strings.HasPrefix(l, "│") && !strings.HasPrefix(l, gutterMore) {
				t.Fatalf("%q: line %q", s, l)
			}
			if utf8.RuneCountInString(l) > lineWidth+2 {
				t.Fatalf("%q: line %q is too long", s, l)
			}
			for _, r := range l {
				if r != ' ' && !unicode.IsGraphic(r) || rightToLeft(r) || unicode.Is(unicode.Cf, r) || unicode.Is(unicode.Z, r) && r != ' ' || blank(r) {
					t.Fatalf("%q: line %q has %U", s, l, r)
				}
			}
		}
		if want := strings.TrimSuffix(s, "\n"); read(t, got) != want && len(want) > 0 {
			t.Fatalf("%q is shown as %q, which reads %q", s, got, read(t, got))
		}
	})
}

// read takes what was shown back to what was written.
func read(t *testing.T, shown []string) string {
	var text []string
	for _, l := range shown {
		if more, ok := strings.CutPrefix(l, gutterMore); ok {
			text[len(text)-1] += more
			continue
		}
		text = append(text, strings.TrimPrefix(strings.TrimPrefix(l, "│"), " "))
	}
	var b strings.Builder
	for i, line := range text {
		if i > 0 {
			b.WriteByte('\n')
		}
		for line != "" {
			if rest, ok := strings.CutPrefix(line, "⇥"); ok {
				b.WriteByte('\t')
				line = strings.TrimPrefix(strings.TrimPrefix(strings.TrimPrefix(rest, " "), " "), " ")
				continue
			}
			if !strings.HasPrefix(line, "⟨") {
				_, n := utf8.DecodeRuneInString(line)
				b.WriteString(line[:n])
				line = line[n:]
				continue
			}
			name, rest, _ := strings.Cut(line[len("⟨"):], "⟩")
			line = rest
			switch n, what, _ := strings.Cut(name, " "); {
			case what == "spaces":
				k, _ := strconv.Atoi(n)
				b.WriteString(strings.Repeat(" ", k))
			case what == "empty lines":
				k, _ := strconv.Atoi(n)
				b.WriteString(strings.Repeat("\n", k-1))
			case n == "byte":
				k, _ := strconv.ParseUint(what, 16, 8)
				b.WriteByte(byte(k))
			case strings.HasPrefix(name, "U+"):
				k, _ := strconv.ParseUint(name[2:], 16, 32)
				b.WriteRune(rune(k))
			default:
				b.WriteString(map[string]string{"TAB": "\t", "LF": "\n", "CR": "\r", "ESC": "\x1b", "NUL": "\x00"}[name])
			}
		}
	}
	return b.String()
}
