// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"io"
	"path"
	"strings"
	"testing"
	"testing/iotest"
	"unicode"

	"pgregory.net/rapid"
)

func TestFramesRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type frame struct {
			k Kind
			p []byte
		}
		var sent []frame
		var b []byte
		for range rapid.IntRange(0, 10).Draw(t, "frames") {
			f := frame{rapid.SampledFrom([]Kind{Stdin, Stdout, Stderr, Data}).Draw(t, "kind"), rapid.SliceOfN(rapid.Byte(), 0, 100).Draw(t, "payload")}
			sent = append(sent, f)
			b = AppendFrame(b, f.k, f.p)
		}
		r := NewReader(iotest.OneByteReader(bytes.NewReader(b)))
		for _, want := range sent {
			k, n, err := r.Next()
			if err != nil || k != want.k || n != len(want.p) {
				t.Fatalf("Next = %c, %d, %v; want %c, %d", k, n, err, want.k, len(want.p))
			}
			if rapid.Bool().Draw(t, "read it") {
				if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, want.p) {
					t.Fatalf("payload %q, %v; want %q", got, err, want.p)
				}
			}
		}
		if _, _, err := r.Next(); err != io.EOF {
			t.Fatalf("at the end: %v", err)
		}
	})
}

func TestReaderRefuses(t *testing.T) {
	for name, b := range map[string][]byte{
		"unknown kind":   AppendFrame(nil, '?', nil),
		"too long":       {byte(Stdout), 0, 1, 0, 1},
		"4 GiB":          {byte(Exit), 255, 255, 255, 255},
		"EOF with bytes": AppendFrame(nil, EOF, []byte("x")),
		"half a header":  {byte(Stdout), 0, 0},
	} {
		if _, _, err := NewReader(bytes.NewReader(b)).Next(); err == nil || err == io.EOF {
			t.Errorf("%s: Next = %v", name, err)
		}
	}
	r := NewReader(bytes.NewReader(AppendFrame(nil, Stdout, []byte("12345"))[:8]))
	if _, _, err := r.Next(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(r); err != io.ErrUnexpectedEOF {
		t.Errorf("half a payload reads with %v", err)
	}
}

// Whatever arrives, the reader ends, within its bounds.
func FuzzReader(f *testing.F) {
	f.Add(AppendFrame(AppendFrame(nil, Stdout, []byte("hi")), Exit, []byte(`{"code":3}`)))
	f.Add([]byte{byte(Start), 0, 255, 255, 255})
	f.Fuzz(func(t *testing.T, b []byte) {
		r := NewReader(bytes.NewReader(b))
		for {
			k, n, err := r.Next()
			if err != nil {
				return
			}
			if n > k.limit() {
				t.Fatalf("%c of %d bytes", k, n)
			}
			if k == Exit {
				var e ExitEvent
				r.JSON(&e)
			}
		}
	})
}

func TestGlob(t *testing.T) {
	for _, tt := range []struct {
		pattern, name string
		match, below  bool
	}{
		{"a", "a", true, false},
		{"a", "b", false, false},
		{"a/b", "a", false, true},
		{"*.png", "x.png", true, false},
		{"*.png", "d/x.png", false, false},
		{"*", ".hidden", true, false},
		{"**/*.png", "x.png", true, true},
		{"**/*.png", "a/b/x.png", true, true},
		{"out/**", "out", false, true},
		{"out/**", "out/a", true, true},
		{"out/**", "out/a/b", true, true},
		{"out/**", "other", false, false},
		{"a/**/b", "a/b", true, true},
		{"a/**/b", "a/x/y/b", true, true},
		{"a/**/b", "a/x", false, true},
		{"**", "anything/at/all", true, true},
		{"**/**/**/x", "x", true, true},
		{"a[bc]?", "abx", true, false},
		{"a**b", "aXb", true, false}, // within a segment ** is *
		{"out/*/f", "out/d", false, true},
		{"out/*/f", "out/d/e", false, false},
	} {
		g, err := ParseGlob(tt.pattern)
		if err != nil {
			t.Fatal(err)
		}
		if g.Match(tt.name) != tt.match || g.Below(tt.name) != tt.below {
			t.Errorf("%s on %s: match %v, below %v; want %v, %v", tt.pattern, tt.name, g.Match(tt.name), g.Below(tt.name), tt.match, tt.below)
		}
	}
}

// What matches lies below directories that are said to be worth entering.
func TestGlobBelowProperty(t *testing.T) {
	segment := rapid.SampledFrom([]string{"a", "b", "*", "**", "a*", "?"})
	rapid.Check(t, func(t *rapid.T) {
		g, err := ParseGlob(strings.Join(rapid.SliceOfN(segment, 1, 5).Draw(t, "pattern"), "/"))
		if err != nil {
			t.Fatal(err)
		}
		name := strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "ab"}), 1, 6).Draw(t, "name"), "/")
		if !g.Match(name) {
			return
		}
		for d := path.Dir(name); ; d = path.Dir(d) {
			if d == "." {
				d = ""
			}
			if !g.Below(d) {
				t.Fatalf("%s matches %s, but not below %q", g, name, d)
			}
			if d == "" {
				return
			}
		}
	})
}

func TestManyStarsAreCheap(t *testing.T) {
	g, err := ParseGlob(strings.Repeat("**/*a*/", 40) + "x")
	if err != nil {
		t.Fatal(err)
	}
	if g.Match(strings.Repeat("aaaaaaaa/", 100) + "y") { // would not return otherwise
		t.Error("it matches")
	}
}

func TestCheckPath(t *testing.T) {
	for _, good := range []string{"a", "a/b", "..a", "a..b", "ä/日本", "a b", "...", strings.Repeat("d/", 127) + "f"} {
		if err := CheckPath(good); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for _, bad := range []string{
		"", "/", "/a", ".", "..", "a/..", "../a", "a/../b", "./a", "a/.", "a//b", "a/", "a\x00", "a\nb", "\x1b[2J", "a\x7f", "\xff",
		"\u202eexe", "a\u200bb", "a\u2028b", "\u0085", strings.Repeat("a", 256), strings.Repeat("a/", 3000), strings.Repeat("d/", 128) + "f",
	} {
		if CheckPath(bad) == nil {
			t.Errorf("%.20q passes", bad)
		}
	}
}

func FuzzGlob(f *testing.F) {
	f.Add("out/**/*.png", "out/a/b.png")
	f.Add("[a-", "a")
	f.Fuzz(func(t *testing.T, pattern, name string) {
		g, err := ParseGlob(pattern)
		if err != nil {
			return
		}
		g.Match(name)
		g.Below(name)
	})
}

// A name that passes stays below where it is opened.
func FuzzCheckPath(f *testing.F) {
	f.Add("a/b")
	f.Add("a/../../b")
	f.Fuzz(func(t *testing.T, name string) {
		if CheckPath(name) != nil {
			return
		}
		if joined := path.Join("/root/dir", name); joined != "/root/dir/"+name {
			t.Errorf("%q leads to %q", name, joined)
		}
		if strings.ContainsFunc(name, unicode.IsControl) {
			t.Errorf("%q holds control characters", name)
		}
	})
}

func TestStartRequestCheck(t *testing.T) {
	good := func() StartRequest { return StartRequest{Argv: []string{"a"}, Dir: "/", Env: []string{"A=b"}} }
	if r := good(); r.Check() != nil {
		t.Error(r.Check())
	}
	for name, spoil := range map[string]func(*StartRequest){
		"no program":         func(r *StartRequest) { r.Argv = nil },
		"empty program":      func(r *StartRequest) { r.Argv[0] = "" },
		"NUL in argument":    func(r *StartRequest) { r.Argv = append(r.Argv, "\x00") },
		"NUL in environment": func(r *StartRequest) { r.Env[0] = "A=\x00" },
		"no value":           func(r *StartRequest) { r.Env[0] = "A" },
		"no key":             func(r *StartRequest) { r.Env[0] = "=b" },
		"relative directory": func(r *StartRequest) { r.Dir = "x" },
		"NUL in directory":   func(r *StartRequest) { r.Dir = "/\x00" },
		"long id":            func(r *StartRequest) { r.ID = strings.Repeat("x", 129) },
	} {
		r := good()
		spoil(&r)
		if r.Check() == nil {
			t.Errorf("%s passes", name)
		}
	}
}

func TestSignals(t *testing.T) {
	for n, want := range map[int]string{9: "SIGKILL", 11: "SIGSEGV", 31: "SIGSYS", 34: "SIG34", 0: "SIG0", -1: "SIG-1"} {
		if got := SignalName(n); got != want {
			t.Errorf("SignalName(%d) = %s, want %s", n, got, want)
		}
	}
	for _, bad := range []SignalRequest{{}, {ID: "x", Signal: 65, Scope: Group}, {Signal: 9, Scope: Group}, {ID: "x", Signal: 9, Scope: "none"}} {
		if bad.Check() == nil {
			t.Errorf("%+v passes", bad)
		}
	}
}
