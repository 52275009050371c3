// SPDX-License-Identifier: Apache-2.0

package gitimport

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/internal/hostpath"
	"github.com/caisson-run/caisson/sandbox"
)

// CheckBranch takes a name that git takes for a branch.
func CheckBranch(name string) error {
	bad := func(why string) error {
		return &sandbox.Error{Op: "branch " + sandbox.Quoted(clip(name)), Kind: sandbox.ErrInvalid, Problem: "it is no name of a branch: " + why, Hint: "write one such as agent/fix-the-tests"}
	}
	switch {
	case name == "" || name == "@" || name == "HEAD" || len(name) > 200:
		return bad("it is empty, too long, or means another thing")
	case name[0] == '-' || strings.HasSuffix(name, "."):
		return bad("it begins with - or ends with a dot")
	case strings.Contains(name, "..") || strings.Contains(name, "@{") || strings.ContainsAny(name, " ~^:?*[\\\x7f"):
		return bad("it has characters that git takes for something else")
	}
	for _, c := range name {
		if c < 0x20 || c == 0xfffd || c >= 0x80 && hostpath.Folded(string(c)) == "" {
			return bad("it has a character that is not seen")
		}
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == "" || part[0] == '.' || strings.HasSuffix(part, ".lock") || len(part) > maxName-len(".lock") {
			return bad("a part of it is empty, begins with a dot or ends with .lock")
		}
	}
	return nil
}

// Head gives the commit that HEAD means; ok is false where nothing was committed.
func (r *Repository) Head() (id ID, ok bool, err error) {
	return resolve(func(name string) (string, error) { return r.text(name) })
}

// resolve finds the commit of HEAD in a repository whose files text reads.
func resolve(text func(name string) (string, error)) (id ID, ok bool, err error) {
	head, err := text("HEAD")
	if err != nil {
		return id, false, err
	}
	for range 5 {
		head = strings.TrimRight(head, " \t\r\n")
		ref, symbolic := strings.CutPrefix(head, "ref:")
		if !symbolic {
			id, err = ParseID(head)
			return id, err == nil, err
		}
		ref = strings.TrimSpace(ref)
		if name, ok := strings.CutPrefix(ref, "refs/heads/"); !ok || CheckBranch(name) != nil {
			return id, false, fmt.Errorf("HEAD leads to %q", clip(ref))
		}
		head, err = text(ref)
		if errors.Is(err, fs.ErrNotExist) {
			return packedRef(text, ref)
		}
		if err != nil {
			return id, false, err
		}
	}
	return id, false, errors.New("HEAD leads in a circle")
}

// packedRef finds a branch among those that are packed.
func packedRef(text func(name string) (string, error), ref string) (id ID, ok bool, err error) {
	packed, err := text("packed-refs")
	if errors.Is(err, fs.ErrNotExist) {
		return id, false, nil
	}
	if err != nil {
		return id, false, err
	}
	for line := range strings.Lines(packed) {
		if sha, name, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " "); ok && name == ref {
			id, err = ParseID(sha)
			return id, err == nil, err
		}
	}
	return id, false, nil
}

// inTheWay refuses where a branch exists whose name stands in the way of another.
func (r *Repository) inTheWay(branch string) error {
	taken := func(by string) error {
		return &sandbox.Error{Op: "branch " + sandbox.Quoted(branch), Kind: sandbox.ErrConflict, Problem: "the repository has a branch " + sandbox.Quoted(by) + " already", Hint: "write another name, or delete that branch"}
	}
	packed, err := r.text("packed-refs")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return r.failed(err)
	}
	for line := range strings.Lines(packed) {
		_, ref, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		if name, ok := strings.CutPrefix(ref, "refs/heads/"); ok && (name == branch || strings.HasPrefix(name, branch+"/") || strings.HasPrefix(branch, name+"/")) {
			return taken(name)
		}
	}
	for at := branch; at != "."; at = path.Dir(at) { // a file above it, or anything at it
		var st unix.Stat_t
		f, err := openBelow(r.git, "refs/heads/"+at, unix.O_PATH)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
			continue
		}
		if err != nil {
			return r.failed(err)
		}
		err = unix.Fstat(int(f.Fd()), &st)
		empty := st.Mode&unix.S_IFMT == unix.S_IFDIR && at == branch && r.removeEmpty(at)
		f.Close()
		if err != nil {
			return r.failed(err)
		}
		if !empty && (at == branch || st.Mode&unix.S_IFMT != unix.S_IFDIR) {
			return taken(at)
		}
	}
	return nil
}

// removeEmpty removes a directory of branches that are gone, which git leaves there.
func (r *Repository) removeEmpty(at string) bool {
	dir, err := openBelow(r.git, path.Dir("refs/heads/"+at), unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return false
	}
	defer dir.Close()
	return unix.Unlinkat(int(dir.Fd()), path.Base(at), unix.AT_REMOVEDIR) == nil
}

// makeBranch makes a branch that does not exist. It has its name when it is whole and on
// the disk.
func (r *Repository) makeBranch(branch string, tip ID) error {
	if err := r.inTheWay(branch); err != nil {
		return err
	}
	dir, err := r.makeDirs(r.git, "refs/heads/"+path.Dir(branch))
	if err != nil {
		return r.failed(err)
	}
	defer dir.Close()
	base := path.Base(branch)
	lock := base + ".lock" // git's own
	fd, err := unix.Openat(int(dir.Fd()), lock, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o644)
	if errors.Is(err, unix.EEXIST) {
		return &sandbox.Error{Op: "branch " + sandbox.Quoted(branch), Kind: sandbox.ErrConflict, Problem: "git has it locked", Hint: "see that no git runs there, and remove " + lock}
	}
	if err != nil {
		return r.failed(err)
	}
	defer unix.Unlinkat(int(dir.Fd()), lock, 0)
	f := os.NewFile(uintptr(fd), lock)
	_, err = f.WriteString(tip.String() + "\n")
	err = errors.Join(err, r.own(f), f.Sync(), f.Close())
	if err == nil {
		err = r.inTheWay(branch) // packed meanwhile
	}
	if err == nil {
		err = unix.Linkat(int(dir.Fd()), lock, int(dir.Fd()), base, 0)
	}
	if err == nil {
		err = dir.Sync()
	}
	if errors.Is(err, unix.EEXIST) {
		return &sandbox.Error{Op: "branch " + sandbox.Quoted(branch), Kind: sandbox.ErrConflict, Problem: "it was made meanwhile", Hint: "write another name"}
	}
	if err != nil {
		return r.failed(err)
	}
	return nil
}
