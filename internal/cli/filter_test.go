// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"regexp"
	"strings"
	"testing"
)

func filtered(chunks ...string) string {
	var b bytes.Buffer
	f := newFilter(&b)
	for _, c := range chunks {
		f.Write([]byte(c))
	}
	return b.String()
}

func TestFilter(t *testing.T) {
	for name, tc := range map[string]struct{ in, want string }{
		"text":                     {"häßlich, 日本語 🙂\n", "häßlich, 日本語 🙂\n"},
		"colour":                   {"\x1b[1;31mred\x1b[0m", "\x1b[1;31mred\x1b[0m"},
		"true colour":              {"\x1b[38:2:1:2:3mx", "\x1b[38:2:1:2:3mx"},
		"progress bar":             {"\r50%\x1b[K\x1b[1A", "\r50%\x1b[K\x1b[1A"},
		"title by OSC":             {"a\x1b]0;evil\ab", "ab"},
		"title by OSC and ST":      {"a\x1b]2;evil\x1b\\b", "ab"},
		"title by screen":          {"a\x1bkevil\x1b\\b", "ab"},
		"clipboard":                {"\x1b]52;c;cm0gLXJmIH4=\a", ""},
		"link":                     {"\x1b]8;;http://e\x1b\\text\x1b]8;;\x1b\\", "text"},
		"DCS":                      {"\x1bPq#0;1;1~-\x1b\\x", "x"},
		"DCS is not ended by bell": {"\x1bP1\a2\x1b\\x", "x"},
		"APC":                      {"\x1b_Gf=24;AAAA\x1b\\x", "x"},
		"asks where the cursor is": {"\x1b[6n", ""},
		"asks who it is":           {"\x1b[c\x1b[>c\x1b[=c\x1bZ", ""},
		"asks for the title":       {"\x1b[21t", ""},
		"answerback":               {"\x05", ""},
		"alternate screen":         {"\x1b[?1049h", ""},
		"bracketed paste off":      {"\x1b[?2004l", ""},
		"private SGR":              {"\x1b[>4;2m\x1b[?4m", ""},
		"clear and home":           {"\x1b[2J\x1b[H", ""},
		"reset":                    {"\x1bc", ""},
		"character set":            {"\x1b(0qqq\x0e", "qqq"},
		"8-bit CSI":                {"\x9b6n\x9b1mx", "\x1b[1mx"},
		"8-bit OSC":                {"\x9d0;evil\ax", "x"},
		"CSI as UTF-8":             {"\u009b6nx", "x"},
		"OSC as UTF-8":             {"\u009d0;evil\ax", "x"},
		"ST as UTF-8":              {"a\u009cb\u0084c\u0085d", "abcd"},
		"CSI, too long":            {"\xe0\x82\x9b6nx", "\xe06nx"},
		"CSI, far too long":        {"\xf0\x80\x82\x9b6nx", "\xf06nx"},
		"half a surrogate":         {"\xed\xa0\x80x", "\xed\xa0x"},
		"beyond Unicode":           {"\xf4\x90\x80\x80x", "\xf4x"},
		"Latin-1":                  {"caf\xe9 \xfcber", "caf\xe9 \xfcber"},
		"lead byte before ESC":     {"\xe2\x1b]0;evil\ax", "\xe2x"},
		"broken CSI":               {"\x1b[12\nx", "\nx"},
		"CSI with ESC inside":      {"\x1b[1\x1b]0;e\ax", "x"},
		"string with ESC inside":   {"\x1b]0;a\x1b[6nb", "b"},
		"cancelled string":         {"\x1b]0;a\x18b", "b"},
		"NUL and DEL":              {"a\x00\x7fb", "ab"},
		"long parameters":          {"\x1b[" + strings.Repeat("1;", 5000) + "mx", "x"},
		"unterminated string":      {"\x1b]" + strings.Repeat("y", longestString) + "zz", "z"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := filtered(tc.in); got != tc.want {
				t.Errorf("%.200q gave %.200q, want %q", tc.in, got, tc.want)
			}
		})
	}
}

func TestFilterTakesColourOff(t *testing.T) {
	var b bytes.Buffer
	f := newFilter(&b)
	f.Write([]byte("\x1b[31mred"))
	f.Close()
	f.Close()
	if want := "\x1b[31mred\x1b[0m"; b.String() != want {
		t.Errorf("got %q, want %q", b.String(), want)
	}
}

// allowed is everything that may come out: no control but the plain ones and
// the sequences that pass.
var allowed = regexp.MustCompile(`^(?s:[\n\r\t\x08\x07\x20-\x7e]|\x1b\[[0-9;:]{0,64}[mKABCDG])*$`)

func FuzzFilter(f *testing.F) {
	for _, s := range []string{"a\x1b]0;x\ab", "\x1b[31mx\x1b[0m", "\u009b6n", "\x9d\x1b\\", "\xe2\x82\xac\xe2\x1b[1m", "\x1bPx\x1b\\", "\x1b(0", "\xf0\x9f\x9b6n"} {
		f.Add(s, uint8(1))
	}
	f.Fuzz(func(t *testing.T, in string, cut uint8) {
		got := filtered(in)
		ascii := strings.Map(func(r rune) rune {
			if r >= 0xa0 || r == '\uFFFD' {
				return -1
			}
			return r
		}, got)
		if !allowed.MatchString(ascii) {
			t.Fatalf("%q lets %q through", in, got)
		}
		if strings.ContainsFunc(got, func(r rune) bool { return r >= 0x80 && r < 0xa0 }) {
			t.Fatalf("%q lets a C1 control through: %q", in, got)
		}
		at := int(cut) % (len(in) + 1)
		if split := filtered(in[:at], in[at:]); split != got {
			t.Fatalf("cut at %d gives %q, whole %q", at, split, got)
		}
		// The full stop ends a character that got may end in the middle of.
		if twice := filtered(got + "."); twice != got+"." {
			t.Fatalf("not idempotent: %q, then %q", got, twice)
		}
	})
}
