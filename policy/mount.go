// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/caisson-run/caisson/sandbox"
)

// MountWish is a host file or directory that a call wants to see.
type MountWish struct {
	Source string         // host path; absolute once it is in a Call
	Target string         // path inside; empty is the base name in the working directory
	Access sandbox.Access // read-only unless said
	Shared bool           // other sandboxes may have it read-write, too, whatever that does to locks
}

// GitAccess says what code may do with the repositories in read-write mounts.
type GitAccess string

// What code may do with them. An empty GitAccess is GitReadOnly where a call names the
// mount, and what the policy file says where the file does.
const (
	GitReadOnly GitAccess = "ro" // .git is read-only as a whole
	GitWrite    GitAccess = "rw" // but for configuration, hooks and what they name
)

// ParseGit reads a --git flag, ro or rw. Errors are ErrInvalid with a hint.
func ParseGit(s string) (GitAccess, error) {
	if g := GitAccess(s); g == GitReadOnly || g == GitWrite {
		return g, nil
	}
	return "", invalid("write ro or rw", "git %s is not a mode", quote(s))
}

// CollectWish names files that a call wants to take out.
type CollectWish struct {
	Pattern string // a Glob on paths inside; relative to the working directory
	Dest    string // host directory; empty is the caller's to choose
}

// CollectLimits bound what comes out by one CollectWish. Zero is the default: 1000 files and
// links, 256 MiB.
type CollectLimits struct {
	Files int   `json:"files,omitempty"` // up to 100,000
	Bytes int64 `json:"bytes,omitempty"` // of all files together
}

// maxCollected bounds the names that caisson holds of one collection.
const maxCollected = 100_000

func (l CollectLimits) check() *refusal {
	if l.Files < 0 || l.Files > maxCollected || l.Bytes < 0 {
		return cannotMean("collect 1 to "+strconv.Itoa(maxCollected)+" files; of more let the program make an archive", "the limits of what is collected are out of range")
	}
	return nil
}

// atColons takes a flag apart at its colons. A backslash before one makes it a part of a
// name; any other backslash is one.
func atColons(s string) (parts []string) {
	var part strings.Builder
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == ':':
			parts = append(parts, part.String())
			part.Reset()
		case s[i] == '\\' && strings.HasPrefix(s[i+1:], ":"):
			i++
			part.WriteByte(':')
		default:
			part.WriteByte(s[i])
		}
	}
	return append(parts, part.String())
}

// ParseMount reads a --mount flag, SRC[:TARGET][:ro|rw|cow], or :rw,shared. SRC is kept as it
// is written, but for \:, which is a colon; the caller makes it absolute. TARGET is
// absolute; without one the mount lands under its base name in the working
// directory. Without a mode it is read-only. Errors are ErrInvalid with a hint.
func ParseMount(s string) (MountWish, error) {
	const form = `write SRC[:TARGET][:MODE], with a mode of ro, rw, cow or rw,shared, such as ./data:/data:ro, with \: for a colon in a name`
	parts := atColons(s)
	m := MountWish{Source: parts[0]}
	if len(parts) > 3 {
		return MountWish{}, invalid(form, "mount %s has too many parts", quote(s))
	}
	if len(parts) > 1 {
		last := parts[len(parts)-1]
		access, shared, err := parseMode(last)
		switch {
		case err == nil:
			m.Access, m.Shared, parts = access, shared, parts[:len(parts)-1]
		case len(parts) == 3 || !strings.HasPrefix(last, "/"):
			if w := nearest(last, accessWords()); w != "" && (len(w) != len(last) || Distance(last, w) == 1) {
				return MountWish{}, invalid("did you mean "+w+"?", "mount %s: %s is not a mode", quote(s), quote(last))
			}
			return MountWish{}, invalid(form, "mount %s: %s is neither an absolute target nor a mode", quote(s), quote(last))
		}
	}
	if len(parts) == 2 {
		m.Target = parts[1]
		if err := checkTarget(m.Target); err != nil {
			return MountWish{}, err
		}
	}
	if err := checkHostPath(m.Source); err != nil {
		return MountWish{}, err
	}
	return m, nil
}

// ParseWorkspace reads a --workspace flag, DIR[:cow|ro|rw], or :rw,shared, with \: for a colon in DIR;
// without a mode writes stay in the sandbox (cow). Errors are ErrInvalid with a hint.
func ParseWorkspace(s string) (MountWish, error) {
	parts := atColons(s)
	m := MountWish{Source: parts[0], Access: sandbox.CopyOnWrite}
	if len(parts) > 1 {
		access, shared, err := parseMode(strings.Join(parts[1:], ":"))
		if err != nil {
			return MountWish{}, invalid(sandbox.Hint(err)+`; a colon in a name is written \:`, "workspace %s: %v", quote(s), err)
		}
		m.Access, m.Shared = access, shared
	}
	if err := checkHostPath(m.Source); err != nil {
		return MountWish{}, err
	}
	return m, nil
}

// ParseCollect reads a --collect flag, PATTERN[:DIR], with \: for a colon in PATTERN,
// to which that is the same. Errors are ErrInvalid with a hint.
func ParseCollect(s string) (CollectWish, error) {
	pattern, dest, ok := cutPattern(s)
	if _, err := ParseGlob(pattern); err != nil {
		return CollectWish{}, err
	}
	if ok {
		if err := checkHostPath(dest); err != nil {
			return CollectWish{}, err
		}
	}
	return CollectWish{Pattern: pattern, Dest: dest}, nil
}

// cutPattern cuts s at the first colon that no backslash takes the meaning of.
func cutPattern(s string) (pattern, rest string, found bool) {
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case ':':
			return s[:i], s[i+1:], true
		}
	}
	return s, "", false
}

// parseMode reads what ParseAccess does, or rw,shared.
func parseMode(s string) (a sandbox.Access, shared bool, err error) {
	if s == sharedMode {
		return sandbox.ReadWrite, true, nil
	}
	a, err = ParseAccess(s)
	return a, false, err
}

// sharedMode is the mode of a mount that several sandboxes may have read-write.
const sharedMode = "rw,shared"

// ParseAccess reads ro, cow or rw. Errors are ErrInvalid with a hint.
func ParseAccess(s string) (sandbox.Access, error) {
	for _, a := range []sandbox.Access{sandbox.ReadOnly, sandbox.CopyOnWrite, sandbox.ReadWrite} {
		if s == a.String() {
			return a, nil
		}
	}
	return sandbox.ReadOnly, invalid(didYouMean(s, accessWords()), "%s is not a mode", quote(s))
}

func accessWords() []string { return []string{"ro", "cow", "rw"} }

// accessName is Access.String for values that come from outside.
func accessName(a sandbox.Access) string {
	if a < sandbox.ReadOnly || a > sandbox.ReadWrite {
		return "unknown mode"
	}
	return a.String()
}

// checkHostPath refuses what no host path can be, or what is never meant.
func checkHostPath(p string) error {
	switch {
	case p == "":
		return invalid("name a file or directory of this host", "the host path is empty")
	case strings.ContainsRune(p, 0):
		return invalid("drop it", "host path %s has a NUL byte", quote(p))
	case p == "~" || strings.HasPrefix(p, "~/"):
		return invalid("write the whole path, or one relative to where it is named", "~ is not expanded in %s", quote(p))
	case len(p) > 4096:
		return invalid("the kernel takes 4096 bytes", "host path %s is too long", quote(p))
	}
	return nil
}

// checkTarget refuses a path inside that is not absolute and clean, or that
// lies where every level puts its own things.
func checkTarget(p string) error {
	switch {
	case !strings.HasPrefix(p, "/"):
		return invalid("write it from the root: /"+strings.TrimPrefix(path.Clean(p), "../"), "path inside %s is not absolute", quote(p))
	case strings.ContainsRune(p, 0):
		return invalid("drop it", "path inside %s has a NUL byte", quote(p))
	case len(p) > 4096:
		return invalid("the kernel takes 4096 bytes", "path inside %s is too long", quote(p))
	case path.Clean(p) != p:
		return invalid("write "+path.Clean(p), "path inside %s is not in its shortest form", quote(p))
	case p == "/":
		return invalid("choose a directory below it; --rootfs replaces the whole tree", "the root itself cannot be a target")
	}
	for _, own := range []string{"/proc", "/sys", "/dev"} {
		// /dev/shm is ordinary scratch.
		if sandbox.Within(p, own) && p != "/dev/shm" {
			return invalid("choose another directory", "%s belongs to the sandbox's kernel", quote(p))
		}
	}
	return nil
}

// hostBeneath is sandbox.Within for paths of this host, the directory first.
func hostBeneath(dir, p string) bool {
	return sandbox.Within(filepath.ToSlash(p), filepath.ToSlash(dir))
}
