// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"path/filepath"
	"testing"
)

// A program's directory is the toolchain's, whatever leads there, and no home.
func TestToolchainOf(t *testing.T) {
	home, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("HOME", home)
	t.Setenv("PYENV_VERSION", "")
	t.Chdir(home)
	at := func(name string) string { return filepath.Join(home, name) }
	for _, name := range []string{"go/bin/go", "node/v20/lib/npm/bin/npm-cli.js", ".local/bin/tool", "pyenv/shims/python", "pyenv/versions/3.12/bin/python", "pyenv/versions/3.13/bin/python"} {
		if err := os.MkdirAll(filepath.Dir(at(name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at(name), []byte("#!/bin/sh\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for name, to := range map[string]string{"bin/go": "go/bin/go", "node/v20/bin/npm": "node/v20/lib/npm/bin/npm-cli.js", "venv/bin/python": "pyenv/versions/3.12/bin/python"} {
		if err := os.MkdirAll(filepath.Dir(at(name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(at(to), at(name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(at("pyenv/version"), []byte("3.12\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"go/bin/go": "go", "bin/go": "go", "node/v20/bin/npm": "node/v20", "pyenv/shims/python": "pyenv/versions/3.12", "venv/bin/python": "pyenv/versions/3.12", ".local/bin/tool": "",
	} {
		if want != "" {
			want = at(want)
		}
		if _, got := toolchainOf(at(name)); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if err := os.WriteFile(".python-version", []byte("3.13\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, got := toolchainOf(at("pyenv/shims/python")); got != at("pyenv/versions/3.13") {
		t.Errorf("%q", got)
	}
	if err := os.WriteFile(".python-version", []byte("../../../etc\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, got := toolchainOf(at("pyenv/shims/python")); got != "" && got != at("pyenv") {
		t.Errorf("%q", got)
	}
}
