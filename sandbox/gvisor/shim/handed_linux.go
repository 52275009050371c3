// SPDX-License-Identifier: Apache-2.0

package shim

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
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
// the name by one that nobody can swap. Without privilege it is used, and
// verify then checks that what was mounted is the object that was handed over:
// whoever swaps the name in between stops the run and gains nothing.
func findHanded(spec *specs.Spec) ([]handedFile, error) {
	var handed []handedFile
	if strings.HasPrefix(spec.Root.Path, "fd:") { // else it is an image, which this process opens itself
		root, err := newHanded(&spec.Root.Path, "/")
		if err != nil {
			return nil, err
		}
		handed = append(handed, root)
	}
	for i := range spec.Mounts {
		m := &spec.Mounts[i]
		if !strings.HasPrefix(m.Source, "fd:") {
			continue
		}
		h, err := newHanded(&m.Source, m.Destination)
		if err != nil {
			return nil, err
		}
		handed = append(handed, h)
	}
	return handed, nil
}

func newHanded(source *string, target string) (handedFile, error) {
	fail := func(err error) (handedFile, error) { return handedFile{}, fmt.Errorf("mount %s: %w", target, err) }
	num := strings.TrimPrefix(*source, "fd:")
	fd, err := strconv.Atoi(num)
	if err != nil {
		return fail(err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fail(err)
	}
	name, err := os.Readlink("/proc/self/fd/" + num)
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
	for _, h := range handed {
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
