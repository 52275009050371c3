// SPDX-License-Identifier: Apache-2.0

package process

import (
	"fmt"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/sandbox"
)

// buildCopy lays something private and writable over a mount: a layer over a directory,
// a copy over a file, which no layer can be laid over.
func (w *rootfs) buildCopy(s *script, src *source) {
	options := []string{"mode", "0700"}
	if w.cow > 0 {
		options = append(options, "size", fmt.Sprint(w.cow))
	}
	s.call(unix.SYS_MKDIRAT, unix.AT_FDCWD, staging, 0o700).or(unix.EEXIST)
	s.attach(s.filesystem("tmpfs", readWrite, options...), staging)
	if src.mount.Dir {
		w.buildLayerOver(s, src)
	} else {
		w.copyFile(s, src)
	}
	// What came of it keeps what it is made of.
	s.call(unix.SYS_UMOUNT2, staging, unix.MNT_DETACH)
}

func (w *rootfs) buildLayerOver(s *script, src *source) {
	m := src.mount
	// The merged directory is what the upper one is: the user's, whatever the
	// lower one's owner, with the lower one's mode.
	s.call(unix.SYS_MKDIRAT, unix.AT_FDCWD, staging+"/upper", 0o700)
	w.userOwns(s, staging+"/upper", src.mode)
	s.call(unix.SYS_MKDIRAT, unix.AT_FDCWD, staging+"/work", 0o700)
	s.attach(s.filesystem("overlay", readWrite|w.unexecutable(m), "lowerdir", lowerDir(m.Target), "upperdir", staging+"/upper", "workdir", staging+"/work", "userxattr", ""), m.Target)
	w.layers.send(s, m.Target, staging+"/upper")
}

// lowerDir writes the name of one directory as an overlay takes it, to which a colon
// stands between two.
func lowerDir(name string) string { return strings.NewReplacer(`\`, `\\`, ":", `\:`).Replace(name) }

// maxSent is how much one sendfile(2) copies.
const maxSent = 0x7ffff000

// copyFile copies the file that is mounted at its target, and mounts the copy there. It
// takes nothing but the very object that was checked, and all that there was of it then.
// The copy is bounded by its share of the disk. The kernel does not count it as the
// sandbox's memory, though: the builder runs on caisson's. What the file grows by inside is.
func (w *rootfs) copyFile(s *script, src *source) {
	const at = staging + "/copy"
	m := src.mount
	s.doing("copy %s", m.Name)
	in, out := s.slot(), s.slot()
	how := &unix.OpenHow{Flags: unix.O_RDONLY | unix.O_NONBLOCK | unix.O_NOFOLLOW | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS}
	s.call(unix.SYS_OPENAT2, unix.AT_FDCWD, m.Target, to(how), int(unix.SizeofOpenHow)).save(in)
	s.call(unix.SYS_OPENAT, unix.AT_FDCWD, at, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o600).save(out)
	for left := src.size; left > 0; left -= maxSent {
		s.call(unix.SYS_SENDFILE, out, in, nil, uint64(min(left, maxSent)))
	}
	read, written := new(unix.Stat_t), new(unix.Stat_t)
	s.call(unix.SYS_FSTAT, in, to(read))
	s.call(unix.SYS_FSTAT, out, to(written))
	s.doing("copy %s: it was replaced or cut off meanwhile", m.Name)
	s.same(&read.Dev, src.dev)
	s.same(&read.Ino, src.ino)
	s.same((*uint64)(unsafe.Pointer(&written.Size)), uint64(src.size))
	s.close(out)
	s.close(in)
	s.doing("mount a copy of %s", m.Name)
	w.userOwns(s, at, src.mode)
	c := s.clone(at)
	s.attributes(c, unix.MountAttr{Attr_set: w.unexecutable(m)})
	s.attach(c, m.Target)
}

// userOwns makes what lies at path the user's, with the mode of what it stands for.
func (w *rootfs) userOwns(s *script, path string, mode uint32) {
	s.call(unix.SYS_FCHOWNAT, unix.AT_FDCWD, path, w.spec.User.UID, w.spec.User.GID, 0)
	s.call(unix.SYS_FCHMODAT, unix.AT_FDCWD, path, mode)
}

// copied reports whether all of the source is copied before the program starts.
func (src *source) copied() bool { return src.mount.Access == sandbox.CopyOnWrite && !src.mount.Dir }

// checkCopy refuses what cannot be copied, and what there is no room for.
func (w *rootfs) checkCopy(src *source) error {
	if !src.copied() {
		return nil
	}
	op := "mount " + src.mount.Name
	if !src.regular {
		return &sandbox.Error{Op: op, Kind: sandbox.ErrUnsupported, Problem: "it is no file whose content could be copied", Hint: "mount it ro or rw"}
	}
	if w.cow > 0 && src.size > w.cow {
		return &sandbox.Error{
			Op: op, Kind: sandbox.ErrUnsupported,
			Problem: fmt.Sprintf("a file is copied to be changed inside, and its %d bytes are more than its share of the disk (%d)", src.size, w.cow),
			Hint:    "raise --disk, mount it ro, or use gvisor, which copies only what is written to",
		}
	}
	return nil
}
