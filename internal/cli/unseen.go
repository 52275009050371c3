// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
)

// hintUnseen helps with what newcomers meet first: a program that failed was given
// the name of a file that is in this directory, or is a program that lies elsewhere on
// this host, and neither is in a sandbox unless it is named. It is silent where that
// name may be there after all.
func (a *app) hintUnseen(f *runFlags, call *session.Call, res *sandbox.Result) {
	failed := res.Status == sandbox.StatusError && res.ExitCode != nil && *res.ExitCode != 0
	if !failed || f.json || f.policy+f.preset != "" || f.workspace != "" || f.image+f.template != "" || f.rootfs != "" || f.workdir != "" {
		return
	}
	if name := unseen(call); name != "" {
		a.note("%s is in this directory, and not in the sandbox (--mount %s shows it, --workspace . all of the directory)", sandbox.Quoted(name), sandbox.Quoted(name))
	} else if name := absent(call, *res.ExitCode); name != "" {
		a.note("%s is on this host, and not in the sandbox (--mount %s:%s shows it there)", sandbox.Quoted(name), sandbox.Quoted(name), sandbox.Quoted(name))
	}
}

// hintShell helps who gives a whole line of shell as one word.
func (a *app) hintShell(f *runFlags, call *session.Call, res *sandbox.Result) {
	if f.json || call.Source != nil || call.File != "" || len(call.Argv) != 1 || res.ExitCode == nil || *res.ExitCode != exitNotFound {
		return
	}
	if strings.ContainsAny(call.Argv[0], " ;|&") {
		a.note("a line of shell takes a shell: caisson run -- sh -c LINE")
	}
}

// hintGit helps whose git fails because the repositories in a read-write mount are
// read-only: git says only that the file system is.
func (a *app) hintGit(f *runFlags, call *session.Call, res *sandbox.Result) {
	if f.json || call.Git == policy.GitWrite || res.ExitCode == nil || *res.ExitCode == 0 {
		return
	}
	live := call.Workspace != nil && call.Workspace.Access == sandbox.ReadWrite ||
		slices.ContainsFunc(call.Mounts, func(m policy.MountWish) bool { return m.Access == sandbox.ReadWrite })
	if live && slices.ContainsFunc(call.Argv, func(word string) bool { return gitWord.MatchString(word) }) {
		a.note("repositories are read-only in what is mounted rw: mount it :cow to have git write in the sandbox, or open them with --git rw")
	}
}

var gitWord = regexp.MustCompile(`(^|[^\w.-])git($|[^\w.-])`)

// fetches is advice about a program that fetches what it runs, in a sandbox without a
// network. It is empty for others.
func fetches(argv []string) string {
	if len(argv) == 0 {
		return ""
	}
	preset := map[string]string{"npx": "npm", "bunx": "npm", "uvx": "pip", "pipx": "pip"}[filepath.Base(argv[0])]
	if preset == "" {
		return ""
	}
	return fmt.Sprintf("%s fetches what is not there, and the sandbox has no network: --allow preset:%s, or network: {allow: [\"preset:%s\"]} in a policy's entry, lets it", filepath.Base(argv[0]), preset, preset)
}

// unseen is what the first word of call's that names something below the working
// directory, and is shown by none of its mounts, has of that directory: the file
// itself, or the directory that leads to it. It is empty when there is none. The first
// word of a command is a file only where it has a slash: else PATH is searched.
func unseen(call *session.Call) string {
	shown := map[string]bool{}
	for _, m := range call.Mounts {
		shown[filepath.Base(m.Source)] = true
		shown[filepath.Base(m.Target)] = true
	}
	for i, word := range call.Argv {
		command := i == 0 && call.Source == nil && call.File == ""
		if command && !strings.Contains(word, "/") || !filepath.IsLocal(word) {
			continue
		}
		first, _, _ := strings.Cut(filepath.Clean(word), string(filepath.Separator))
		if first == "." || shown[first] || shown[filepath.Base(word)] {
			continue
		}
		if _, err := os.Lstat(word); err == nil {
			return first
		}
	}
	return ""
}

// absent is the first word of call's that is the absolute path of a file of this host,
// and is shown by nothing: of the program where it was not found, and of what is below
// the working directory. Other files are the host's own, and no hint names them.
func absent(call *session.Call, code int) string {
	here, err := os.Getwd()
	if err != nil {
		return ""
	}
	shown := []string{"/usr", "/bin", "/sbin", "/lib", "/lib64", "/proc", "/sys", "/dev"}
	shown = append(shown, call.Toolchains...)
	for _, m := range call.Mounts {
		shown = append(shown, m.Target)
	}
	for i, word := range call.Argv {
		command := i == 0 && call.Source == nil && call.File == ""
		if !filepath.IsAbs(word) || slices.ContainsFunc(shown, func(dir string) bool { return beneath(word, dir) }) {
			continue
		}
		if command && code != exitNotFound || !command && !beneath(word, here) {
			continue
		}
		if at, err := os.Stat(word); err == nil && at.Mode().IsRegular() {
			return filepath.Clean(word)
		}
	}
	return ""
}

// beneath says whether a path is dir or below it, by their names.
func beneath(path, dir string) bool {
	if !filepath.IsAbs(dir) {
		return false
	}
	rel, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(rel)
}
