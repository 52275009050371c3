// SPDX-License-Identifier: Apache-2.0

package shim

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/sandbox/gvisor/protocol"
)

// handedFile is a host object that the owner checked and handed over open.
type handedFile struct {
	fd     int
	dir    bool
	target string            // where it is mounted inside
	rename func(path string) // tells the spec its name
}

// findHanded finds the sources "fd:<n>" in spec and gives each the name that
// the kernel has for the file.
//
// gVisor's gofer mounts by name, in a mount namespace of its own where a
// descriptor from outside cannot be mounted (EINVAL). As root, stage replaces
// the name by one that cannot be swapped. Without privilege it is used, and
// verify then checks that what was mounted is the object that was handed over:
// a swap of the name in between stops the run and gains nothing.
func findHanded(spec *specs.Spec, files []*os.File) ([]handedFile, error) {
	var handed []handedFile
	if strings.HasPrefix(spec.Root.Path, "fd:") { // else it is an image, which this process opens itself
		root, err := newHanded(&spec.Root.Path, "/", files)
		if err != nil {
			return nil, err
		}
		handed = append(handed, root)
	}
	if source := spec.Annotations[imageAnnotation]; source != "" {
		f, err := fileOf(source, files)
		if err != nil {
			return nil, fmt.Errorf("the root's image: %w", err)
		}
		spec.Annotations[imageAnnotation] = "/proc/self/fd/" + strconv.Itoa(int(f.Fd()))
	}
	for i := range spec.Mounts {
		m := &spec.Mounts[i]
		if !strings.HasPrefix(m.Source, "fd:") {
			continue
		}
		h, err := newHanded(&m.Source, m.Destination, files)
		if err != nil {
			return nil, err
		}
		handed = append(handed, h)
	}
	return handed, nil
}

// imageAnnotation names the file that the root is an image in.
const imageAnnotation = "dev.gvisor.spec.rootfs.source"

// fileOf finds the file that source means.
func fileOf(source string, files []*os.File) (*os.File, error) {
	number, ok := strings.CutPrefix(source, "fd:")
	index, err := strconv.Atoi(number)
	if !ok || err != nil || index < protocol.FirstFile || index >= len(files) {
		return nil, fmt.Errorf("%q did not come with the order", source)
	}
	return files[index], nil
}

func newHanded(source *string, target string, files []*os.File) (handedFile, error) {
	fail := func(err error) (handedFile, error) { return handedFile{}, fmt.Errorf("mount %s: %w", target, err) }
	f, err := fileOf(*source, files)
	if err != nil {
		return fail(err)
	}
	fd := int(f.Fd())
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fail(err)
	}
	name, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
	if err != nil {
		return fail(err)
	}
	*source = name
	return handedFile{
		fd: fd, dir: st.Mode&unix.S_IFMT == unix.S_IFDIR, target: target,
		rename: func(path string) { *source = path },
	}, nil
}

// verify compares what the gofer has mounted with what was handed over. It
// runs before any code of the sandbox does. Without anything handed over there
// is no gofer.
func verify(handed []handedFile, gofer int) error {
	if len(handed) > 0 && gofer <= 0 {
		return errors.New("there is no file server for what is to be mounted")
	}
	// The gofer prepares the tree below /root of a root of its own and enters
	// it at some moment from here on. So it is looked for there first, and then
	// where it is once it was entered: the other way round both looks can miss.
	after := fmt.Sprintf("/proc/%d/root", gofer)
	before := after + "/root"
	for i, h := range handed {
		if slices.ContainsFunc(handed[i+1:], func(over handedFile) bool { return over.target == h.target }) {
			continue // another lies over it, which is looked at: nothing of this one is reached
		}
		var want unix.Stat_t
		if err := unix.Fstat(h.fd, &want); err != nil {
			return fmt.Errorf("mount %s: %w", h.target, err)
		}
		if !isObject(before, h, &want) && !isObject(after, h, &want) {
			return fmt.Errorf("mount %s: it was replaced while it was being mounted", h.target)
		}
	}
	return nil
}

// isObject reports whether h's target below root is the object that want
// describes.
func isObject(root string, h handedFile, want *unix.Stat_t) bool {
	path := filepath.Join(root, h.target)
	if h.target == "/" {
		path = root + "/." // root may be a magic link of /proc
	}
	var got unix.Stat_t
	return unix.Lstat(path, &got) == nil && got.Dev == want.Dev && got.Ino == want.Ino
}
