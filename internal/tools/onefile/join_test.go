// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"debug/buildinfo"
	"debug/elf"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// built is a program that says its name and its arguments.
func built(t testing.TB, arch, name string, flags ...string) []byte {
	t.Helper()
	dir := t.TempDir()
	src := "package main\nimport \"os\"\nvar big [5 << 20]byte\nfunc main() { big[len(os.Args)] = 1; for i, b := range big { if b != 0 && i != len(os.Args) { panic(i) } }\n" +
		"for _, a := range os.Args[1:] { a = a + \" \"; print(a) }; println(\"" + name + "\") }\n"
	for file, text := range map[string]string{"main.go": src, "go.mod": "module " + name + "\n"} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("go", append([]string{"build", "-trimpath", "-o", "program"}, flags...)...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch, "GOFLAGS=", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	b, err := os.ReadFile(filepath.Join(dir, "program"))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

const (
	strip = "-ldflags=-s -w"
	far   = "-ldflags=-s -w -T 0x20001000"
)

// What the process becomes is decided by its arguments, on the other processor, too.
func TestJoin(t *testing.T) {
	for _, arch := range []string{"amd64", "arm64"} {
		t.Run(arch, func(t *testing.T) {
			first := built(t, arch, "whole", strip)
			both, err := join(first, built(t, arch, "lean", far))
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(t.TempDir(), "both")
			if err := os.WriteFile(path, both, 0o755); err != nil {
				t.Fatal(err)
			}
			for line, want := range map[string]string{
				"caisson":               "whole",
				"caisson run":           "run lean",
				"caisson run -- true":   "run -- true lean",
				"run":                   "whole",
				"run run":               "run lean",
				"caisson ru":            "ru whole",
				"caisson runs":          "runs whole",
				"caisson Run":           "Run whole",
				"caisson version run":   "version run whole",
				"+caisson run -- true":  "run -- true whole",
				"caisson+ run":          "run lean",
				"caisson  run":          " run whole",
				"caisson -h run":        "-h run whole",
				"/usr/bin/caisson run":  "run lean",
				"+/usr/bin/caisson run": "run whole",
			} {
				out, err := started(t, arch, path, strings.Split(line, " ")...).CombinedOutput()
				if err != nil || strings.TrimRight(string(out), "\n") != want {
					t.Errorf("%q: %q, %v", line, out, err)
				}
			}
			if cmd := started(t, arch, path); cmd != nil {
				if out, err := cmd.CombinedOutput(); err != nil || string(out) != "whole\n" {
					t.Errorf("without a single argument: %q, %v", out, err)
				}
			}
			sameToOthers(t, path, first)
		})
	}
}

// started is a program with those arguments, the first of which is its name; nil where
// that cannot be done here, on another processor than it is for.
func started(t *testing.T, arch, path string, args ...string) *exec.Cmd {
	t.Helper()
	if arch == runtime.GOARCH {
		return &exec.Cmd{Path: path, Args: args}
	}
	if len(args) == 0 {
		return nil
	}
	emulator, err := exec.LookPath(map[string]string{"amd64": "qemu-x86_64-static", "arm64": "qemu-aarch64-static"}[arch])
	if err != nil {
		t.Skip("there is no emulator of", arch, "here: make test-many installs one")
	}
	return exec.Command(emulator, append([]string{"-0", args[0], path}, args[1:]...)...)
}

// Who builds packages strips what is in them, and there is nothing to strip: both programs
// are in the file that is written anew.
func TestStripped(t *testing.T) {
	both, err := join(built(t, runtime.GOARCH, "whole", strip), built(t, runtime.GOARCH, "lean", far))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "both")
	if err := os.WriteFile(path, both, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, by := range []string{"strip", "objcopy", "llvm-strip", "llvm-objcopy"} {
		if _, err := exec.LookPath(by); err != nil && strings.HasPrefix(by, "llvm") {
			continue
		}
		out := filepath.Join(dir, by)
		args := []string{path, out}
		if strings.HasSuffix(by, "strip") {
			args = []string{"-o", out, path}
		}
		if said, err := exec.Command(by, args...).CombinedOutput(); err != nil || len(said) > 0 {
			t.Errorf("%s: %v: %s", by, err, said)
			continue
		}
		for arg, want := range map[string]string{"run": "run lean\n", "version": "version whole\n"} {
			if said, err := exec.Command(out, arg).CombinedOutput(); err != nil || string(said) != want {
				t.Errorf("%s, %s: %q, %v", by, arg, said, err)
			}
		}
	}
}

// Each byte that the kernel maps is in a section, but for the header and what is nothing.
func TestSections(t *testing.T) {
	both, err := join(built(t, "arm64", "whole", strip), built(t, "arm64", "lean", far))
	if err != nil {
		t.Fatal(err)
	}
	file, err := elf.NewFile(bytes.NewReader(both))
	if err != nil {
		t.Fatal(err)
	}
	left := bytes.Clone(both)
	for _, s := range file.Sections {
		if s.Flags&elf.SHF_ALLOC != 0 && s.Type != elf.SHT_NOBITS {
			clear(left[s.Offset:][:s.FileSize])
		}
	}
	clear(left[:headerSize+len(file.Progs)*progSize])
	for _, p := range file.Progs {
		if p.Type == elf.PT_LOAD && len(bytes.Trim(left[p.Off:][:p.Filesz], "\x00")) > 0 {
			t.Errorf("what is at %#x is in no section", p.Vaddr)
		}
	}
}

// sameToOthers: whoever looks at the file sees the first program.
func sameToOthers(t *testing.T, path string, first []byte) {
	t.Helper()
	info, err := buildinfo.ReadFile(path)
	if err != nil || info.Path != "whole" {
		t.Errorf("build information: %v, %v", info, err)
	}
	both, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer both.Close()
	was, err := elf.NewFile(bytes.NewReader(first))
	if err != nil {
		t.Fatal(err)
	}
	if len(both.Sections) < len(was.Sections) {
		t.Fatalf("%d sections, want %d", len(both.Sections), len(was.Sections))
	}
	for i, s := range was.Sections {
		if s.Name != ".shstrtab" && both.Sections[i].SectionHeader != s.SectionHeader {
			t.Errorf("section %v, want %v", both.Sections[i].SectionHeader, s.SectionHeader)
		}
	}
}

// The same two give the same bytes.
func TestJoinIsTheSame(t *testing.T) {
	first, second := built(t, "amd64", "whole", strip), built(t, "amd64", "lean", far)
	one, err1 := join(first, second)
	other, err2 := join(first, second)
	if err1 != nil || err2 != nil || !bytes.Equal(one, other) {
		t.Errorf("%d and %d bytes, %v, %v", len(one), len(other), err1, err2)
	}
}

// The file takes the place of an old one, or of none, and its directory is made, as by go build.
func TestWrite(t *testing.T) {
	dir := t.TempDir()
	whole, lean, out := filepath.Join(dir, "whole"), filepath.Join(dir, "lean"), filepath.Join(dir, "dist", "caisson")
	if err := errors.Join(os.WriteFile(whole, built(t, runtime.GOARCH, "whole", strip), 0o600), os.WriteFile(lean, built(t, runtime.GOARCH, "lean", far), 0o600)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := write(whole, lean, out); err != nil {
			t.Fatal(err)
		}
	}
	if said, err := exec.Command(out, "run").CombinedOutput(); err != nil || string(said) != "run lean\n" {
		t.Errorf("%q, %v", said, err)
	}
}

func TestJoinRefuses(t *testing.T) {
	whole, lean := built(t, "amd64", "whole", strip), built(t, "amd64", "lean", far)
	joined, err := join(whole, lean)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		whole, lean []byte
		says        string
	}{
		"one over the other":  {whole, built(t, "amd64", "lean", strip), "link it elsewhere"},
		"in the wrong order":  {lean, whole, "link it elsewhere"},
		"off the large pages": {whole, built(t, "amd64", "lean", "-ldflags=-s -w -T 0x20101000"), "no multiple"},
		"other processors":    {whole, built(t, "arm64", "lean", far), "different processors"},
		"twice":               {joined, lean, "link it elsewhere"},
		"no fixed address":    {whole, built(t, "amd64", "lean", "-buildmode=pie"), "no fixed address"},
		"cut off":             {whole, lean[:len(lean)/2], "cut off"},
		"no program":          {whole, []byte("#!/bin/sh\n" + strings.Repeat("x", 100)), "no program"},
		"nothing":             {whole, nil, "EOF"},
	} {
		if _, err := join(c.whole, c.lean); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
