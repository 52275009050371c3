// SPDX-License-Identifier: Apache-2.0

package image

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/sandbox"
)

const (
	maxFile    = 4 << 20 // bytes of one copied file
	maxEntries = 20_000  // files, directories and links of the host's /etc
	maxDepth   = 16      // directories below an entry of etcTable
)

// The kinds of a found thing.
const (
	kindNone byte = 0
	kindDir  byte = 'd'
	kindFile byte = 'f'
	kindLink byte = 'l'
)

// found is one thing of the host's /etc that will be in the skeleton.
type found struct {
	path string // inside: "/etc/ssl/certs"
	kind byte
}

// hostTree is what a skeleton is made from: the host's directories and /etc as
// they are now.
type hostTree struct {
	root  int // O_PATH handle of the host's root
	binds []sandbox.Mount
	links map[string]string // "/bin" → "usr/bin"
	etc   []found           // once it was surveyed, see complete
	looks []look            // what the survey looked at

	sum   hash.Hash // gets everything that decides what the skeleton holds
	files []*os.File
}

// hostDirs are the top-level directories that hold programs and libraries.
var hostDirs = []string{"usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "libo32"}

// close closes all handles.
func (h *hostTree) close() {
	unix.Close(h.root)
	for _, f := range h.files {
		f.Close()
	}
}

// surveyHost opens the host's directories and looks at its /etc without
// reading it. Where notes of an earlier look are still right, etc stays empty.
func surveyHost(root string, sum hash.Hash, notes string) (*hostTree, error) {
	fd, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, hostError("open "+root, err)
	}
	h := &hostTree{root: fd, links: map[string]string{}, sum: sum}
	for _, name := range hostDirs {
		if err := h.topLevel(name); err != nil {
			h.close()
			return nil, err
		}
	}
	if err := h.surveyEtc(notes); err != nil {
		h.close()
		return nil, err
	}
	return h, nil
}

// complete makes a survey where notes had stood for it: a caller wants to know
// what there is. It says nothing new to the digest.
func (h *hostTree) complete() error {
	if h.etc != nil {
		return nil
	}
	h.sum = sha256.New()
	return h.surveyEtc("")
}

// topLevel takes one of hostDirs: a bind where it is a directory, a link where
// the host has merged it into another one.
func (h *hostTree) topLevel(name string) error {
	var st unix.Stat_t
	err := unix.Fstatat(h.root, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, unix.ENOENT) {
		if name == "usr" {
			return noToolchain("the host has no /usr")
		}
		return nil
	}
	if err != nil {
		return hostError("look at /"+name, err)
	}
	if st.Mode&unix.S_IFMT == unix.S_IFLNK && name != "usr" {
		link, err := readlinkAt(h.root, name)
		if err != nil {
			return hostError("read the link /"+name, err)
		}
		if to := resolveLink("/"+name, link); !slices.ContainsFunc(hostDirs, func(d string) bool { return within(to, "/"+d) }) {
			return noToolchain(fmt.Sprintf("the host's /%s is a link to %s, which is none of the usual directories", name, to))
		}
		h.links["/"+name] = link
		fmt.Fprintf(h.sum, "link %q %q\n", name, link)
		return nil
	}
	// Absolute links in a host root that is not "/" mean that root.
	fd, err := unix.Openat2(h.root, name, &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return hostError("open /"+name, err)
	}
	f := os.NewFile(uintptr(fd), "/"+name)
	h.files = append(h.files, f)
	h.binds = append(h.binds, sandbox.Mount{Source: f, Name: "/" + name, Target: "/" + name, Dir: true})
	fmt.Fprintf(h.sum, "bind %q\n", name)
	return nil
}

// surveyEtc finds everything of the host's /etc that etcTable allows, and keeps
// notes in the file of that name, if there is one.
func (h *hostTree) surveyEtc(notes string) error {
	fd, err := unix.Openat2(h.root, "etc", &unix.OpenHow{
		Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	})
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return hostError("open /etc", err)
	}
	dir := os.NewFile(uintptr(fd), "/etc")
	defer dir.Close()
	if notes != "" && h.recall(fd, readNotes(notes)) {
		return nil
	}
	h.etc = []found{}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return hostError("look at /etc", err)
	}
	h.looks = []look{{name: ".", kind: kindOf(&st), read: true, was: identity(&st)}}
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return hostError("read /etc", err)
	}
	slices.Sort(names)
	seen := map[string]bool{}
	for _, e := range etcTable {
		first, rest, _ := strings.Cut(e.path, "/")
		for _, name := range matching(names, first) {
			if err := h.surveyEntry(fd, name, rest, seen); err != nil {
				return err
			}
		}
	}
	if notes != "" {
		writeNotes(notes, h.looks, time.Now())
	}
	return nil
}

// matching returns the names that match a pattern of etcTable.
func matching(names []string, pattern string) []string {
	if !strings.ContainsAny(pattern, "*?[") {
		if _, ok := slices.BinarySearch(names, pattern); ok {
			return []string{pattern}
		}
		return nil
	}
	var out []string
	for _, n := range names {
		if ok, _ := path.Match(pattern, n); ok {
			out = append(out, n)
		}
	}
	return out
}

// surveyEntry takes name, in the directory fd, and of it only rest when there
// is a rest. A directory on the way that is a link is taken as that link.
func (h *hostTree) surveyEntry(fd int, name, rest string, seen map[string]bool) error {
	at := "/etc/" + name
	for rest != "" {
		var st unix.Stat_t
		if err := unix.Fstatat(fd, strings.TrimPrefix(at, "/etc/"), &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return skipMissing("look at "+at, err)
		}
		if st.Mode&unix.S_IFMT != unix.S_IFDIR {
			break
		}
		if !seen[at] {
			seen[at] = true
			h.add(at, kindDir, &st)
			h.looks = append(h.looks, look{name: strings.TrimPrefix(at, "/etc/"), kind: kindOf(&st), read: true, was: identity(&st), in: true})
		}
		name, rest, _ = strings.Cut(rest, "/")
		at += "/" + name
	}
	if seen[at] {
		return nil
	}
	seen[at] = true
	return h.survey(fd, strings.TrimPrefix(at, "/etc/"), at, 0)
}

// survey takes what is called name in the directory fd, with all below it.
func (h *hostTree) survey(fd int, name, at string, depth int) error {
	var st unix.Stat_t
	if err := unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return skipMissing("look at "+at, err)
	}
	if len(h.etc) >= maxEntries || depth > maxDepth {
		return noToolchain(fmt.Sprintf("the host's /etc holds more than %d files, or directories more than %d deep, that sandboxes should see (at %s)", maxEntries, maxDepth, at))
	}
	kind := kindOf(&st)
	h.looks = append(h.looks, look{name: strings.TrimPrefix(at, "/etc/"), kind: kind, read: kind == kindDir, was: identity(&st), in: kind != kindNone})
	if kind != kindNone {
		h.add(at, kind, &st)
	}
	if kind == kindDir {
		return h.surveyDir(fd, name, at, depth)
	}
	return nil
}

// kindOf is what a thing is taken as: files and directories that not everybody
// may read are not.
func kindOf(st *unix.Stat_t) byte {
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFLNK:
		return kindLink
	case unix.S_IFREG:
		if st.Mode&0o004 != 0 && st.Size <= maxFile {
			return kindFile
		}
	case unix.S_IFDIR:
		if st.Mode&0o005 == 0o005 {
			return kindDir
		}
	}
	return kindNone
}

// surveyDir takes what a directory holds. A link there is not looked at more
// closely: it cannot be changed without changing the directory's times, which
// are part of the digest already.
func (h *hostTree) surveyDir(fd int, name, at string, depth int) error {
	sub, err := unix.Openat(fd, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return skipMissing("open "+at, err)
	}
	dir := os.NewFile(uintptr(sub), at)
	defer dir.Close()
	entries, err := dir.ReadDir(-1)
	if err != nil {
		return hostError("read "+at, err)
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	for _, e := range entries {
		if e.Type() == fs.ModeSymlink && len(h.etc) < maxEntries {
			h.etc = append(h.etc, found{at + "/" + e.Name(), kindLink})
			continue
		}
		if err := h.survey(sub, e.Name(), at+"/"+e.Name(), depth+1); err != nil {
			return err
		}
	}
	return nil
}

// add notes a thing that will be in the skeleton.
func (h *hostTree) add(at string, kind byte, st *unix.Stat_t) {
	h.etc = append(h.etc, found{at, kind})
	h.mix(at, kind, st)
}

// mix puts into the digest what changes with a thing.
func (h *hostTree) mix(at string, kind byte, st *unix.Stat_t) {
	b := make([]byte, 0, 128)
	b = append(b, at...)
	b = append(b, 0, kind)
	for _, v := range []uint64{st.Dev, st.Ino, uint64(st.Mode), uint64(st.Size),
		uint64(st.Mtim.Sec), uint64(st.Mtim.Nsec), uint64(st.Ctim.Sec), uint64(st.Ctim.Nsec)} {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	h.sum.Write(b)
}

// resolveLink is where a link at the absolute path at points, as far as its
// words say.
func resolveLink(at, target string) string {
	if path.IsAbs(target) {
		return path.Clean(target)
	}
	return path.Join(path.Dir(at), target)
}

// within says whether p is dir or lies below it.
func within(p, dir string) bool {
	return p == dir || strings.HasPrefix(p, dir) && p[len(dir)] == '/'
}

// readlinkAt reads a link of at most 4 KiB.
func readlinkAt(fd int, name string) (string, error) {
	b := make([]byte, 4096)
	n, err := unix.Readlinkat(fd, name, b)
	if err != nil {
		return "", err
	}
	return string(b[:n]), nil
}

// skipMissing takes what vanished, or what we may not read, for not there.
func skipMissing(op string, err error) error {
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return nil
	}
	return hostError(op, err)
}

// hostError is a failure to read the host's own tree.
func hostError(op string, err error) error {
	return &sandbox.Error{Op: op, Kind: sandbox.ErrUnavailable, Problem: "the host's toolchain cannot be read", Cause: err,
		Hint: "check that /usr and /etc are readable, or give another tree with --rootfs DIR"}
}

// noToolchain is a host that is laid out in a way we do not know.
func noToolchain(problem string) error {
	return &sandbox.Error{Op: "build root filesystem", Kind: sandbox.ErrUnsupported, Problem: problem,
		Hint: "give another tree with --rootfs DIR"}
}
