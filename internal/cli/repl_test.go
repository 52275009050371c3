// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"encoding/base64"
	"image"
	"image/png"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/interpreter"
)

func TestWholePieces(t *testing.T) {
	for language, tt := range map[string]struct{ whole, open []string }{
		interpreter.Python: {
			[]string{"1+1", "x = {'a': 1}", "print('(')", "s = 'it''s'  # (", "x[1:2]", "f(\n1)", "'''a\nb'''", "d = {1:\n2}", `"\""`, "lambda: 1"},
			[]string{"f(", "'''a", "if x:", "if x:\n  y", "for i in a: # note", "@cache", "x = \\", "[1,\n2", "def f():\n  return {\n  }", `"""a "b" `},
		},
		interpreter.JavaScript: {
			[]string{"1+1", "f()", "`a\n${b}`", "x => { y }", "'(' // {", "a ? b : c"},
			[]string{"function f() {", "`a", "[1,", "f(a,"},
		},
		interpreter.Bash: {
			[]string{"ls", "for i in 1; do echo $i; done", "cat <<E\na\nE", "echo 'a'"},
			[]string{"for i in 1", "if true; then", "echo 'a", "cat <<E\na", "f() {"},
		},
		"ir": {[]string{"f("}, nil},
	} {
		whole := wholeIn(language)
		for _, code := range tt.whole {
			if !whole(code + "\n") {
				t.Errorf("%s: %q goes on", language, code)
			}
		}
		for _, code := range tt.open {
			if whole(code + "\n") {
				t.Errorf("%s: %q is run", language, code)
			}
		}
	}
}

// Ctrl-C takes the line away that is typed, wherever it comes in what is read.
func TestInterruptedLine(t *testing.T) {
	for _, size := range []int{1, 2, 100} {
		k := &interruptible{in: strings.NewReader("ab\x03\x03c")}
		var got []byte
		for buf := make([]byte, size); ; {
			n, err := k.Read(buf)
			got = append(got, buf[:n]...)
			if err == io.EOF {
				break
			}
		}
		if string(got) != "ab\x05\x15\r\x05\x15\rc" || !k.pushed {
			t.Errorf("%q", got)
		}
	}
}

func TestReplCompletes(t *testing.T) {
	r := &replInput{words: map[string]bool{}}
	r.learn("dataframe = data_in(x)")
	for _, tt := range []struct {
		line, want string
		pos        int
	}{{"da", "data", 2}, {"dataf", "dataframe", 5}, {"(data_", "(data_in", 6}, {"q", "q", 1}, {"", "    ", 0}, {"dat x", "data x", 3}} {
		line, pos, ok := r.complete(tt.line, tt.pos, '\t')
		if !ok || line != tt.want || pos != tt.pos+len(line)-len(tt.line) {
			t.Errorf("%q: %q, %d, %t", tt.line, line, pos, ok)
		}
	}
	if _, _, ok := r.complete("a", 1, 'b'); ok {
		t.Error("a letter completes")
	}
}

// What a terminal or a viewer gets was written here, and is bounded.
func TestCleanPicture(t *testing.T) {
	small := func(w, h int) string {
		var b bytes.Buffer
		if err := png.Encode(&b, image.NewGray(image.Rect(0, 0, w, h))); err != nil {
			t.Fatal(err)
		}
		return base64.StdEncoding.EncodeToString(append(b.Bytes(), "\x1b]0;title\a"...))
	}
	out, err := cleanPicture(small(3, 2))
	if err != nil || bytes.Contains(out, []byte("title")) {
		t.Errorf("%q, %v", out, err)
	}
	for name, text := range map[string]string{"no base64": "<>", "no picture": "aGVsbG8=", "a large one": small(1, maxPixels+1)} {
		if _, err := cleanPicture(text); err == nil {
			t.Errorf("%s: it is shown", name)
		}
	}
	env := func(kv ...string) func(string) string {
		return func(name string) string {
			for i := 0; i < len(kv); i += 2 {
				if kv[i] == name {
					return kv[i+1]
				}
			}
			return ""
		}
	}
	if picturesOf(env("TERM", "xterm-256color")) != nil || picturesOf(env("TERM", "xterm-kitty", "TMUX", "x")) != nil {
		t.Error("a terminal shows pictures that cannot")
	}
	big := bytes.Repeat([]byte("x"), 10_000)
	if s := picturesOf(env("TERM", "xterm-kitty"))(big); strings.Count(s, "\x1b_G") != 4 || !strings.Contains(s, "m=0;") {
		t.Errorf("kitty: %d messages", strings.Count(s, "\x1b_G"))
	}
	if s := picturesOf(env("TERM_PROGRAM", "iTerm.app"))(big); !strings.Contains(s, "size=10000:") {
		t.Error("iTerm: no size")
	}
}

// Pictures are written into the directory that was opened, and through no link in it.
func TestSavedPictures(t *testing.T) {
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	dir := filepath.Join(t.TempDir(), "pictures")
	other, moved := t.TempDir(), dir+".old"
	victim := filepath.Join(other, "victim")
	s := &cellShow{app: &app{err: null}, dir: dir}
	defer s.end()
	save := func() {
		t.Helper()
		if err := s.picture([]byte("a picture")); err != nil {
			t.Fatal(err)
		}
	}
	save()
	for name, to := range map[string]string{"2.png": victim, "3.png": "no/where"} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	save()
	if err := os.Rename(dir, moved); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(other, dir); err != nil {
		t.Fatal(err)
	}
	save()
	if made, err := os.ReadDir(other); err != nil || len(made) != 0 {
		t.Errorf("elsewhere are %v, %v", made, err)
	}
	for _, name := range []string{"1.png", "4.png", "5.png"} {
		if b, err := os.ReadFile(filepath.Join(moved, name)); err != nil || string(b) != "a picture" {
			t.Errorf("%s: %q, %v", name, b, err)
		}
	}
}

// What a cell leaves open at the terminal neither colours nor swallows what the next one prints.
func TestCellLeavesNothingOpen(t *testing.T) {
	var out, errs bytes.Buffer
	s := &cellShow{app: &app{}, out: newFilter(&out), errs: newFilter(&errs)}
	for _, text := range []string{"\x1b[8mhidden", "\x1b]0;title", "\x9b", "seen"} {
		for _, e := range []interpreter.Event{
			{Type: interpreter.Stdout, Text: text}, {Type: interpreter.Stderr, Text: text}, {Type: interpreter.End, End: &interpreter.Ending{Status: interpreter.Done}},
		} {
			if err := s.event(e); err != nil {
				t.Fatal(err)
			}
		}
	}
	const want = "\x1b[8mhidden\x1b[0mseen"
	if out.String() != want || errs.String() != want {
		t.Errorf("%q and %q, want %q", out.String(), errs.String(), want)
	}
}
