// SPDX-License-Identifier: Apache-2.0

package image

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/image/fstree"
	"github.com/caisson-run/caisson/sandbox"
)

// packs packs a fake host.
func packs(t *testing.T, root, skeletons, packs string) *Root {
	t.Helper()
	r, err := PackHost(t.Context(), HostOptions{root: root, Cache: skeletons, Targets: []Target{{Path: "/usr/nowhere", Dir: true}}}, PackOptions{Cache: packs})
	must(t, err)
	t.Cleanup(func() { r.Close() })
	return r
}

func packedHost(t *testing.T) string {
	host := fakeHost(t, "usr/bin/sh=#!", "usr/bin/tool=text", "usr/bin/closed=secret 0600", "usr/private/file=secret", "usr/bin/suid=root 4755",
		"usr/lib/a=b", "bin->usr/bin", "usr/bin/link->tool", "etc/passwd=host:x:0:0::/:/bin/sh", "home/me/key=secret", "srv/key=secret")
	must(t, os.Chmod(filepath.Join(host, "usr/private"), 0o700))
	must(t, os.Link(filepath.Join(host, "usr/bin/tool"), filepath.Join(host, "usr/bin/same")))
	must(t, unix.Mkfifo(filepath.Join(host, "usr/pipe"), 0o644))
	return host
}

// text is what a file of a packed root has.
func text(t *testing.T, r *Root, name string) string {
	t.Helper()
	f := r.root.Image.EROFS
	info, err := f.Stat()
	must(t, err)
	n, err := fstree.FindEROFS(f, info.Size(), name)
	if errors.Is(err, fstree.ErrNotFound) {
		return "nothing"
	}
	must(t, err)
	if n.Mode&^0o1777 != 0 {
		t.Errorf("%s has the mode %o", name, n.Mode)
	}
	switch n.Kind {
	case fstree.Link:
		return "-> " + n.Target
	case fstree.Dir:
		return "a directory"
	}
	b, err := readAll(f, n)
	must(t, err)
	return string(b)
}

func TestPackHost(t *testing.T) {
	rest(t, 50*time.Millisecond)
	host, dir := packedHost(t), t.TempDir()
	r := packs(t, host, dir+"/cache", dir+"/packs")
	for name, want := range map[string]string{
		"/usr/bin/tool": "text", "/usr/bin/same": "text", "/usr/bin/suid": "root", "/usr/bin/link": "-> tool", "/bin": "-> usr/bin", "/home/user": "a directory",
		"/usr/bin/closed": "", "/usr/private": "a directory", "/usr/private/file": "nothing", "/usr/pipe": "nothing", "/home/me": "nothing", "/srv/key": "nothing", "/usr/nowhere": "nothing",
	} {
		if got := text(t, r, name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if got := text(t, r, "/etc/passwd"); got == "" || got == "host:x:0:0::/:/bin/sh" {
		t.Errorf("/etc/passwd: %q", got)
	}

	// It is the same as long as nothing has changed, also when what is ours was made anew.
	must(t, os.RemoveAll(dir+"/cache"))
	again := packs(t, host, dir+"/cache", dir+"/packs")
	if again.root.Image.Digest != r.root.Image.Digest || again.root.Image.EROFS.Name() != r.root.Image.EROFS.Name() {
		t.Errorf("packed anew: %s and %s", r.root.Image.EROFS.Name(), again.root.Image.EROFS.Name())
	}
	must(t, os.WriteFile(filepath.Join(host, "usr/bin/tool"), []byte("other"), 0o644))
	changed := packs(t, host, dir+"/cache", dir+"/packs")
	if got := text(t, changed, "/usr/bin/tool"); got != "other" || changed.root.Image.Digest == r.root.Image.Digest {
		t.Errorf("after a change: %q", got)
	}
	if got := text(t, r, "/usr/bin/tool"); got != "text" {
		t.Errorf("what is in use has changed: %q", got)
	}
}

func TestPackDir(t *testing.T) {
	rest(t, 50*time.Millisecond)
	packs := filepath.Join(t.TempDir(), "packs")
	r, err := PackDir(t.Context(), handle(t, packedHost(t)), PackOptions{Cache: packs})
	must(t, err)
	defer r.Close()
	for name, want := range map[string]string{"/usr/bin/tool": "text", "/usr/bin/closed": "", "/usr/private/file": "nothing", "/etc/passwd": "host:x:0:0::/:/bin/sh"} {
		if got := text(t, r, name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	for _, lines := range []string{"etc->/etc", "proc->../proc"} {
		if _, err := PackDir(t.Context(), handle(t, fakeHost(t, lines)), PackOptions{Cache: packs}); !errors.Is(err, sandbox.ErrDenied) {
			t.Errorf("%s: %v", lines, err)
		}
	}
}
