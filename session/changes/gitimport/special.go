// SPDX-License-Identifier: Apache-2.0

package gitimport

import (
	"errors"
	"fmt"
	"strings"

	"github.com/caisson-run/caisson/internal/hostpath"
)

// maxSpecial bounds a file that git itself reads, in bytes.
const maxSpecial = 1 << 20

// special says that git itself reads a file by its name, and which it is, under whatever
// spelling a file system takes for it.
func special(name string) (kind string, ok bool) {
	folded := hostpath.Folded(name)
	for _, kind := range []string{".gitmodules", ".gitattributes", ".gitignore", ".mailmap"} {
		if folded == kind || shortOf(folded, kind) {
			return kind, true
		}
	}
	return "", false
}

// shortOf says that a name is what NTFS may call a longer one: GITMOD~1, GI7EB8~1.
func shortOf(folded, long string) bool {
	stem, number, ok := strings.Cut(folded, "~")
	return ok && len(stem) >= 2 && len(stem) <= 6 && number != "" && strings.Trim(number, "0123456789") == "" &&
		(strings.HasPrefix(long[1:], stem) || strings.HasPrefix(stem, long[1:3]))
}

// checkSpecial takes a file that git itself reads only where git fsck takes it.
func checkSpecial(kind string, text string) error {
	switch kind {
	case ".gitattributes":
		for line := range strings.SplitSeq(text, "\n") {
			if len(line) >= 2048 {
				return errors.New(".gitattributes has a line of more than 2048 bytes")
			}
		}
	case ".gitmodules":
		return checkModules(text)
	}
	return nil
}

// checkModules takes a .gitmodules as git submodule writes it, with nothing quoted and
// nothing that a shell or git would take for an option or for a place elsewhere.
func checkModules(text string) error {
	in := false
	for line := range strings.SplitSeq(text, "\n") {
		line = strings.TrimSpace(line)
		if name, ok := strings.CutPrefix(line, `[submodule "`); ok {
			name, ok = strings.CutSuffix(name, `"]`)
			if !ok || !plainModule(name) {
				return fmt.Errorf(".gitmodules has the submodule %q", clip(name))
			}
			in = true
			continue
		}
		if line == "" || line[0] == '#' || line[0] == ';' {
			continue
		}
		key, value, ok := strings.Cut(line, "=")
		key, value = strings.ToLower(strings.TrimSpace(key)), strings.TrimSpace(value)
		switch {
		case !in || !ok || strings.ContainsAny(value, "\"\\\r#;"):
			return fmt.Errorf(".gitmodules has the line %q", clip(line))
		case key == "path" && plainModule(value):
		case key == "url" && value != "" && value[0] != '-' && !strings.Contains(value, "::") && !strings.Contains(value, "%"):
		case (key == "branch" || key == "shallow" || key == "ignore" || key == "fetchrecursesubmodules") && value != "" && value[0] != '-':
		default: // update runs a command
			return fmt.Errorf(".gitmodules has the line %q", clip(line))
		}
	}
	return nil
}

// plainModule takes the name or the path of a submodule.
func plainModule(s string) bool {
	if s == "" || s[0] == '-' || s[0] == '/' || strings.ContainsAny(s, "\"\\\r\n\x00:") {
		return false
	}
	for part := range strings.SplitSeq(s, "/") {
		if part == ".." || part == "." || part == "" || hostpath.IsGit(part) {
			return false
		}
	}
	return true
}
