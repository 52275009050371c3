// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

func TestDebVersion(t *testing.T) {
	for in, want := range map[string]string{
		"v1.2.3":                    "1.2.3",
		"v1.2.3-4-gabcdef":          "1.2.3+4.gabcdef",
		"v1.2.3-rc1":                "1.2.3~rc1",
		"v1.2.3-4-gabcdef-dirty":    "1.2.3+4.gabcdef.dirty",
		"v0.0.0-dev+0123456789ab":   "0.0.0~dev+0123456789ab",
		"v0.1.0-dev+g0123456-dirty": "0.1.0~dev+g0123456.dirty",
	} {
		if got := DebVersion(in); got != want {
			t.Errorf("DebVersion(%q) = %q, want %q", in, got, want)
		}
	}
}

// dpkg itself has the last word on whether it is a package.
func TestPackageIsReadByDpkg(t *testing.T) {
	dpkg, err := exec.LookPath("dpkg-deb")
	if err != nil {
		t.Skip("needs dpkg-deb, which Debian and its children have")
	}
	dir := t.TempDir()
	binary, license := filepath.Join(dir, "caisson"), filepath.Join(dir, "LICENSE")
	// An odd length: ar pads it.
	if err := os.WriteFile(binary, []byte("#!/bin/sh\necho hi \n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(license, []byte("Apache"), 0o644); err != nil {
		t.Fatal(err)
	}
	p := &Package{Version: "v1.0.0-rc1", Arch: "arm64", Date: time.Unix(1_700_000_000, 0)}
	if err := write(p, binary, license, dir); err != nil {
		t.Fatal(err)
	}
	deb := filepath.Join(dir, "caisson_1.0.0~rc1_arm64.deb")
	fields, err := exec.Command(dpkg, "--field", deb, "Package", "Version", "Architecture").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, fields)
	}
	if want := "Package: caisson\nVersion: 1.0.0~rc1\nArchitecture: arm64\n"; string(fields) != want {
		t.Errorf("fields:\n%swant:\n%s", fields, want)
	}
	if out, err := exec.Command(dpkg, "-x", deb, filepath.Join(dir, "x")).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	installed := filepath.Join(dir, "x/usr/bin/caisson")
	info, err := os.Stat(installed)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o755 || !info.ModTime().Equal(p.Date) {
		t.Errorf("installed with mode %v, time %v", info.Mode(), info.ModTime())
	}
	listing, err := exec.Command(dpkg, "--contents", deb).Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(listing)) {
		if !strings.Contains(line, "root/root") && !strings.Contains(line, " 0/0 ") {
			t.Errorf("not root's: %s", line)
		}
	}
}

func TestSameInputSameBytes(t *testing.T) {
	p := &Package{Version: "v1.0.0", Arch: "amd64", Date: time.Unix(0, 0), Binary: []byte("x"), License: []byte("y")}
	var a, b bytes.Buffer
	if err := p.Encode(&a); err != nil {
		t.Fatal(err)
	}
	if err := p.Encode(&b); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(a.Bytes(), b.Bytes()) {
		t.Error("two packages of the same input differ")
	}
}

// A service in which caisson works: with openat2(2), which these take, and without
// whatever else a filter of calls would miss.
func TestUnitTakesNoCalls(t *testing.T) {
	for _, option := range []string{"RestrictSUIDSGID=yes", "SystemCallFilter", "RestrictNamespaces", "MemoryDenyWriteExecute"} {
		if bytes.Contains(unit, []byte("\n"+option)) {
			t.Errorf("the unit has %s", option)
		}
	}
}

// systemd itself reads the units.
func TestUnit(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("needs systemd-analyze")
	}
	dir := t.TempDir()
	args := []string{"verify", "--man=no"}
	for name, text := range map[string][]byte{"caisson.service": unit, "caisson-sandboxes.service": groupUnit} {
		file := filepath.Join(dir, name)
		// The binary is where this machine has one.
		if err := os.WriteFile(file, bytes.Replace(text, []byte("/usr/bin/caisson"), []byte("/bin/true"), 1), 0o644); err != nil {
			t.Fatal(err)
		}
		args = append(args, file)
	}
	out, err := exec.Command(analyze, args...).CombinedOutput()
	// What is newer than the oldest systemd that it runs on, and may be missing there.
	newer := regexp.MustCompile(`(?m)^.*Unknown key( name)? 'DelegateSubgroup' in section .?Service.?, ignoring\.\n`)
	if said := newer.ReplaceAll(out, nil); err != nil || len(said) > 0 {
		t.Errorf("%v\n%s", err, said)
	}
}
