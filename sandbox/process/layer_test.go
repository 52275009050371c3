// SPDX-License-Identifier: Apache-2.0

//go:build linux

package process_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/process"
)

// Attributes of overlays that the host's files have lead nowhere: a directory that was in a
// layer once shows what lies in it, and nothing of another, which may be hidden. A file
// whose content they say lies elsewhere is not opened.
func TestLowerRedirect(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: only its overlays know these attributes")
	}
	dir := t.TempDir()
	for name, text := range map[string]string{"hidden/secret": "canary\n", "sub/own": "own\n", "file": "file\n"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"sub", "file"} {
		for attribute, value := range map[string]string{"redirect": "/hidden", "metacopy": ""} {
			if name == "sub" && attribute == "metacopy" {
				continue
			}
			if err := unix.Setxattr(filepath.Join(dir, name), "trusted.overlay."+attribute, []byte(value), 0); err != nil {
				t.Skip("this file system has no attributes trusted.overlay.*: ", err)
			}
		}
	}
	f, err := os.OpenFile(dir, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	spec := fixture(t)
	spec.Mounts = append(spec.Mounts, sandbox.Mount{Source: f, Name: dir, Target: "/data", Access: sandbox.CopyOnWrite, Dir: true})
	spec.Masks = append(spec.Masks, sandbox.Mask{Target: "/data/hidden", Dir: true})
	var out bytes.Buffer
	const script = "exec 2>&1; cd /data; ls sub; cat file; mv sub moved && ls moved; mv hidden h; cat h/secret hidden/secret sub/secret moved/secret | grep canary"
	if _, err := process.New(process.Options{}).Run(t.Context(), spec, &sandbox.Exec{
		Argv: []string{"/bin/sh", "-c", script}, Dir: "/", Env: []string{"PATH=/usr/bin:/bin"}, Stdout: &out,
	}); err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(out.Bytes(), []byte("canary")) || !bytes.HasPrefix(out.Bytes(), []byte("own\n")) || !bytes.Contains(out.Bytes(), []byte("\nown\n")) {
		t.Errorf("inside there is %q", out.String())
	}
}
