// SPDX-License-Identifier: Apache-2.0

package image

import (
	"crypto/sha256"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/image/fstree"
	"github.com/caisson-run/caisson/sandbox"
)

// A file that is written in its place while it is copied, to the same size, ends the packing.
func TestPackChanged(t *testing.T) {
	for name, change := range map[string]func(at string) error{
		"written":   func(at string) error { return os.WriteFile(at, []byte("TEXT"), 0o644) },
		"unchanged": func(string) error { return nil },
	} {
		host := fakeHost(t, "file=text")
		dir, err := os.Open(host)
		must(t, err)
		defer dir.Close()
		p := packing{dir: dir, onCopy: func(name string) { must(t, change(filepath.Join(host, name))) }}
		l, err := p.look(t.Context(), &packer{})
		must(t, err)
		err = p.write(t.Context(), packsIn(t.TempDir()), l, t.TempDir(), nil)
		if name == "unchanged" && err != nil || name == "written" && (!errors.Is(err, sandbox.ErrUnavailable) || !strings.Contains(err.Error(), "being changed")) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Of what is mounted in a directory the names are packed, of the same file system, too, and
// are told. Of this host's programs it is packed, where it lies on a disk.
func TestPackMounted(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, who may mount")
	}
	host := fakeHost(t, "file=text", "own=text", "dir/", "made/", "other/inner=other", "cover=other")
	skeleton, err := os.Open(fakeHost(t, "usr/", "etc/x=x"))
	must(t, err)
	defer skeleton.Close()
	var apart, whole *looked
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlocked: its mounts end with the thread
		if err = unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_FS); err != nil {
			return
		}
		if err = unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			return
		}
		if err = errors.Join(unix.Mount(host+"/other", host+"/dir", "", unix.MS_BIND, ""), unix.Mount(host+"/cover", host+"/file", "", unix.MS_BIND, ""),
			unix.Mount("proc", host+"/made", "proc", 0, "")); err != nil {
			return
		}
		var dir, contents *os.File
		if dir, err = os.Open(host); err != nil {
			return
		}
		defer dir.Close()
		if contents, err = os.Create(filepath.Join(t.TempDir(), "contents")); err != nil {
			return
		}
		defer contents.Close()
		look := func(p packing) *looked {
			l, bad := p.look(t.Context(), &packer{contents: fstree.NewContents(contents), room: 1 << 30})
			err = errors.Join(err, bad)
			return l
		}
		apart, whole = look(packing{dir: dir}), look(packing{dir: skeleton, made: true, binds: []sandbox.Mount{{Source: dir, Target: "/usr"}}})
	}()
	<-done
	if errors.Is(err, unix.EPERM) {
		t.Skip("may not mount")
	}
	must(t, err)
	root := apart.root
	if n := root.Children["dir"]; n == nil || n.Kind != fstree.Dir || len(n.Children) > 0 {
		t.Errorf("what is mounted on a directory is %+v", n)
	}
	if n := root.Children["file"]; n == nil || n.Size > 0 {
		t.Errorf("what is mounted on a file is %+v", n)
	}
	if root.Children["own"].Size != 4 || root.Children["other"].Children["inner"].Size != 5 {
		t.Error("what is not mounted is missing")
	}
	if want := []string{"/dir", "/file", "/made"}; !slices.Equal(apart.left, want) {
		t.Errorf("%q are told to be left out, want %q", apart.left, want)
	}
	usr := whole.root.Children["usr"]
	if usr.Children["dir"].Children["inner"].Size != 5 || usr.Children["file"].Size != 5 {
		t.Error("what is mounted below the host's programs is missing")
	}
	if want := []string{"/usr/made"}; !slices.Equal(whole.left, want) || len(usr.Children["made"].Children) > 0 {
		t.Errorf("%q are told to be left out, want %q, with nothing in it", whole.left, want)
	}
}

// What is something else by the time it is opened is being changed: the cache is not at fault.
func TestPackTurned(t *testing.T) {
	host := fakeHost(t, "plain=text", "link->plain")
	dir, err := os.Open(host)
	must(t, err)
	defer dir.Close()
	f, err := os.Create(filepath.Join(t.TempDir(), "contents"))
	must(t, err)
	defer f.Close()
	p := &packer{ctx: t.Context(), sum: sha256.New(), contents: fstree.NewContents(f), max: maxPack, room: 1 << 30, seen: map[[2]uint64]*fstree.Node{}}
	var st unix.Stat_t
	must(t, unix.Fstatat(int(dir.Fd()), "plain", &st, 0))
	for _, name := range []string{"link", "gone"} {
		if _, err := p.file(p.describe(name, &st), int(dir.Fd()), name, &st); err == nil || !strings.Contains(err.Error(), "being changed") {
			t.Errorf("a file that is a %s: %v", name, err)
		}
	}
	if err := sourceError(unix.EIO); strings.Contains(err.Error(), "cache") || !errors.Is(err, unix.EIO) {
		t.Errorf("%v", err)
	}
}
