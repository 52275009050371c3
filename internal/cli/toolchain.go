// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bufio"
	"cmp"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
)

// hintToolchain helps whose program is in their own PATH, or below their working
// directory, and needs a directory of this host that no sandbox has by itself: it names
// the directory. A program that failed may be another one inside than the caller's.
func (a *app) hintToolchain(f *runFlags, call *session.Call, res *sandbox.Result) {
	if f.json || f.image+f.template != "" || f.rootfs != "" || res.ExitCode == nil || *res.ExitCode == 0 {
		return
	}
	name, missing := session.Interpreter(call), *res.ExitCode == exitNotFound
	if call.Source == nil && call.File == "" && len(call.Argv) > 0 {
		name = call.Argv[0]
	}
	if strings.Contains(name, "/") {
		if to, dir := base(name, f.workspace); missing && dir != "" {
			a.note("%s leads to %s, which is not in the sandbox (--toolchain %s shows it)", sandbox.Quoted(name), sandbox.Quoted(to), typed([]string{dir}))
		}
		return
	}
	at, err := exec.LookPath(name)
	if err != nil || !filepath.IsAbs(at) { // LookPath of no name is an error, too
		return
	}
	venv := venvOf(at)
	at, dir := toolchainOf(at)
	var flags []string
	for _, d := range []string{venv, dir} {
		if d != "" && !slices.Contains(call.Toolchains, d) {
			flags = append(flags, "--toolchain "+typed([]string{d}))
		}
	}
	switch {
	case len(flags) == 0:
	case missing:
		a.note("%s is %s on this host, and not in the sandbox (%s shows it)", sandbox.Quoted(name), sandbox.Quoted(at), strings.Join(flags, " "))
	case !beneath(at, "/usr/bin") && !beneath(at, "/bin"):
		a.note("%s inside is this host's own, and not yours, %s (%s shows that)", sandbox.Quoted(name), sandbox.Quoted(at), strings.Join(flags, " "))
	}
}

// venvOf is the virtual environment of Python's that a program lies in; empty where it lies
// in none. What its own Python is a link to is a toolchain of its own.
func venvOf(program string) string {
	dir := filepath.Dir(filepath.Dir(program))
	if _, err := os.Stat(filepath.Join(dir, "pyvenv.cfg")); err != nil {
		return ""
	}
	return dir
}

// toolchainOf is the program that a name in PATH stands for, and the directory whose bin
// it lies in; empty where that is no toolchain's alone, but a user's home, say.
func toolchainOf(at string) (program, dir string) {
	if v := shimmed(at); v != "" {
		at = v
	}
	for _, program := range []string{at, resolved(at)} {
		bin := resolved(filepath.Dir(program))
		dir := filepath.Dir(bin)
		if filepath.Base(bin) == "bin" && !shared(dir) && beneath(resolved(at), dir) {
			return program, dir
		}
	}
	return at, ""
}

// shared says that a directory has more than a toolchain.
func shared(dir string) bool {
	home, err := os.UserHomeDir()
	own := []string{"/", "/usr", "/usr/local"}
	if err == nil {
		home = resolved(home)
		own = append(own, home, filepath.Join(home, ".local"), filepath.Join(home, ".cargo"))
	}
	return slices.Contains(own, dir)
}

// resolved is path without links; as it is where that cannot be said.
func resolved(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	return path
}

// shimmed is the program that a shim of pyenv starts, of the version that is in force;
// empty where at is none.
func shimmed(at string) string {
	dir := filepath.Dir(at)
	root := filepath.Dir(dir)
	if filepath.Base(dir) != "shims" {
		return ""
	}
	here, _ := os.Getwd()
	version := os.Getenv("PYENV_VERSION")
	for d := here; version == "" && d != ""; d = filepath.Dir(d) {
		version = firstWord(filepath.Join(d, ".python-version"))
		if d == filepath.Dir(d) {
			break
		}
	}
	version, _, _ = strings.Cut(cmp.Or(version, firstWord(filepath.Join(root, "version"))), ":")
	if !filepath.IsLocal(version) {
		return ""
	}
	program := filepath.Join(root, "versions", version, "bin", filepath.Base(at))
	if _, err := os.Stat(program); err != nil {
		return ""
	}
	return program
}

// firstWord is the first word of a small file; empty without one.
func firstWord(path string) string {
	words := strings.Fields(firstLine(path))
	if len(words) == 0 {
		return ""
	}
	return words[0]
}

// firstLine is the first line of a regular file, as far as a kernel reads it.
func firstLine(path string) string {
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
		return ""
	}
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	line, _ := bufio.NewReader(io.LimitReader(f, 256)).ReadString('\n')
	return strings.TrimSpace(line)
}

// base is where a link below the workspace, or the interpreter of a script there, leads
// out of it, and the toolchain there: that of a Python venv's bin/python.
func base(name, workspace string) (to, dir string) {
	root, mode, _ := strings.Cut(workspace, ":")
	if workspace == "" || filepath.IsAbs(name) || strings.Contains(mode, "/") {
		return "", ""
	}
	root, err := filepath.Abs(root)
	if err != nil {
		return "", ""
	}
	at := filepath.Join(root, name)
	if words := strings.Fields(strings.TrimPrefix(firstLine(at), "#!")); beneath(resolved(at), resolved(root)) {
		if len(words) == 0 || !filepath.IsAbs(words[0]) {
			return "", ""
		}
		at = words[0]
	}
	to = resolved(at)
	if beneath(to, resolved(root)) || beneath(to, "/usr/bin") || beneath(to, "/bin") {
		return "", ""
	}
	_, dir = toolchainOf(to)
	return to, dir
}
