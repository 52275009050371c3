// SPDX-License-Identifier: Apache-2.0

package image

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/image/fstree"
)

// What a user puts into a directory that another user packs brings nothing of the host into
// the pack but what it is, and takes nothing from the rest.
func TestPackHostile(t *testing.T) {
	rest(t, 50*time.Millisecond)
	outside := fakeHost(t, "secret=secret 0600", "public=public")
	host := fakeHost(t, "a=text", "suid=text 4755", "dir/inner=text")
	at := func(name string) string { return filepath.Join(host, name) }
	strange := "new\nline\x1b[2J\xff" + strings.Repeat("n", 240)
	must(t, os.WriteFile(at(strange), []byte("strange"), 0o644))
	for name, to := range map[string]string{"up": "../../../../etc/shadow", "away": outside, "round": "round", "long": strings.Repeat("x", 4000), strange + "l": "\n"} {
		must(t, os.Symlink(to, at(name)))
	}
	must(t, os.Link(filepath.Join(outside, "secret"), at("hard")))
	must(t, os.Link(filepath.Join(outside, "public"), at("shared")))
	must(t, os.Link(at("a"), at("dir/b")))
	must(t, unix.Mkfifo(at("pipe"), 0o666))
	l, err := net.Listen("unix", at("socket"))
	must(t, err)
	defer l.Close()
	want := []string{"a", "away", "dir", "hard", strange, strange + "l", "long", "round", "shared", "suid", "up"}
	if os.Geteuid() == 0 {
		must(t, unix.Mknod(at("null"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))))
		must(t, unix.Mknod(at("disk"), unix.S_IFBLK|0o666, int(unix.Mkdev(7, 0))))
		must(t, os.WriteFile(at("others"), []byte("others"), 0o604))
		must(t, os.Chown(at("others"), 65533, 65533))
		want = append(want, "others")
	}
	deep := host
	for range 100 {
		deep = filepath.Join(deep, strings.Repeat("d", 20))
	}
	must(t, os.MkdirAll(deep, 0o755))
	want = append(want, strings.Repeat("d", 20))
	f, err := os.Create(at("holes"))
	must(t, err)
	must(t, f.Truncate(64<<20))
	must(t, f.Close())
	want = append(want, "holes")

	r := packDir(t, host, filepath.Join(t.TempDir(), "packs"))
	root, err := readTree(r.root.Image.EROFS)
	must(t, err)
	slices.Sort(want)
	if got := root.Names(); !slices.Equal(got, want) {
		t.Errorf("it has %q, want %q", got, want)
	}
	for name, n := range root.Children {
		if n.Mode&^0o1777 != 0 || n.UID != 0 && n.UID != others || n.GID != 0 && n.GID != others {
			t.Errorf("%q has the mode %o of %d:%d", name, n.Mode, n.UID, n.GID)
		}
	}
	if n := root.Children["hard"]; n.Size != 0 {
		t.Errorf("another name of a secret has %d bytes", n.Size)
	}
	if root.Children["a"] != root.Children["dir"].Children["b"] {
		t.Error("two names of a file are two files")
	}
	if n := root.Children["up"]; n.Kind != fstree.Link || n.Target != "../../../../etc/shadow" {
		t.Errorf("a link is %+v", n)
	}
	if n := root.Children["holes"]; n.Size != 64<<20 {
		t.Errorf("a file of holes has %d bytes", n.Size)
	}
	if holds(t, r, "secret") {
		t.Error("its file has what not everybody may read")
	}
}

// A directory that becomes another one, or a file that becomes something else, while it is
// looked through is not followed.
func TestPackSwapped(t *testing.T) {
	rest(t, 50*time.Millisecond)
	outside := fakeHost(t, "dir/key=secret", "file=secret")
	for name, swap := range map[string]func(host string){
		"a directory by a link": func(host string) {
			must(t, os.RemoveAll(filepath.Join(host, "dir")))
			must(t, os.Symlink(filepath.Join(outside, "dir"), filepath.Join(host, "dir")))
		},
		"a file by a link": func(host string) {
			must(t, os.Remove(filepath.Join(host, "file")))
			must(t, os.Symlink(filepath.Join(outside, "file"), filepath.Join(host, "file")))
		},
		"a file by a pipe": func(host string) {
			must(t, os.Remove(filepath.Join(host, "file")))
			must(t, unix.Mkfifo(filepath.Join(host, "file"), 0o644))
		},
		"a file by another": func(host string) {
			must(t, os.Rename(filepath.Join(host, "other"), filepath.Join(host, "file")))
		},
		"a file is closed": func(host string) { must(t, os.Chmod(filepath.Join(host, "file"), 0o600)) },
	} {
		host := fakeHost(t, "a=text", "dir/inner=text", "file=text", "other=else")
		dir, err := os.Open(host)
		must(t, err)
		defer dir.Close()
		cache := t.TempDir()
		must(t, os.Chmod(cache, 0o700))
		p := packing{from: host, dir: dir, onCopy: func(name string) {
			if name == "a" { // the first
				swap(host)
			}
		}}
		if _, err := packed(t.Context(), p, PackOptions{Cache: cache}); err == nil || !strings.Contains(err.Error(), "being changed") {
			t.Errorf("%s: %v", name, err)
		}
		noPack(t, cache)
	}
}
