// SPDX-License-Identifier: Apache-2.0

package image

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"io/fs"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/image/fstree"
	"github.com/caisson-run/caisson/image/imagetest"
	"github.com/caisson-run/caisson/image/reference"
	"github.com/caisson-run/caisson/sandbox"
)

func ref(t testing.TB, s string) reference.Ref {
	t.Helper()
	r, err := reference.Parse(s)
	must(t, err)
	return r
}

func newStore(t testing.TB) *Store {
	t.Helper()
	s, err := OpenStore(filepath.Join(t.TempDir(), "images"))
	must(t, err)
	return s
}

// sampleLayers have everything that an image may have, in two layers.
func sampleLayers(t testing.TB) [][]byte {
	return [][]byte{
		imagetest.Layer(t, "usr/bin/", "usr/bin/sh=#!", "bin->usr/bin", "etc/", "etc/passwd=root:x:0:0::/root:/bin/sh\napp:x:1234:1235::/srv/app:/bin/sh\n",
			"etc/group=root:x:0:\nstaff:x:50:\n", "etc/hosts=10.0.0.1 secret-host\n", "etc/resolv.conf->/run/host/resolv.conf", "old=1", "big="+strings.Repeat("x", 20_000)),
		imagetest.Layer(t, ".wh.old=", "new=2", "new2=>new", "srv/app/", tar.Header{Typeflag: tar.TypeReg, Name: "srv/app/secret", Mode: 0o600, Uid: 1234, Gid: 1235},
			tar.Header{Typeflag: tar.TypeReg, Name: "usr/bin/su", Mode: 0o6755}, tar.Header{Typeflag: tar.TypeChar, Name: "dev/sda", Mode: 0o666, Devmajor: 8}, "big=small"),
	}
}

var sampleConfig = imagetest.Config{User: "app:staff", Env: []string{"PATH=/opt/bin:/bin", "A=1"}, Entrypoint: []string{"/bin/sh", "-c"}, Cmd: []string{"true"}, WorkingDir: "srv/app"}

// tree lists a directory: kind, mode, size or target.
func tree(t testing.TB, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	must(t, filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		must(t, err)
		info, err := d.Info()
		must(t, err)
		at := strings.TrimPrefix(p, dir)
		switch {
		case d.Type() == fs.ModeSymlink:
			to, err := os.Readlink(p)
			must(t, err)
			out[at] = "->" + to
		case d.IsDir():
			out[at+"/"] = info.Mode().String()
		default:
			b, err := os.ReadFile(p)
			must(t, err)
			if len(b) > 40 {
				b = b[:40]
			}
			out[at] = info.Mode().String() + " " + string(b)
		}
		return nil
	}))
	return out
}

// TestSources pulls one image from everywhere and wants the same of it.
func TestSources(t *testing.T) {
	img := imagetest.New(t, sampleConfig, sampleLayers(t)...)
	dir := t.TempDir()
	host := imagetest.Registry(t)
	img.Push(host + "/acme/sample:1")
	img.Layout(filepath.Join(dir, "layout"))
	img.Archive(filepath.Join(dir, "saved.tar"), "acme/sample:1")
	config, err := img.ConfigName()
	must(t, err)
	s := newStore(t)
	var first map[string]string
	for name, digest := range map[string]string{
		host + "/acme/sample:1":                                                img.Digest(),
		host + "/acme/sample@" + img.Digest():                                  img.Digest(),
		filepath.Join(dir, "layout"):                                           img.Digest(),
		"oci:" + filepath.Join(dir, "layout"):                                  img.Digest(),
		filepath.Join(dir, "saved.tar"):                                        config.String(),
		"docker-archive:" + filepath.Join(dir, "saved.tar"):                    config.String(),
		"docker-archive:" + filepath.Join(dir, "saved.tar") + ":acme/sample:1": config.String(),
	} {
		info, err := s.Get(t.Context(), ref(t, name), PullOptions{})
		if err != nil || info.Digest != digest {
			t.Fatalf("%s: %+v, %v, want %s", name, info, err, digest)
		}
		if info.User != (sandbox.User{UID: 1234, GID: 50, Name: "app", Home: "/home/user"}) || info.Root.Name != "root" || info.Config.WorkingDir != "/srv/app" {
			t.Errorf("%s: %+v", name, info)
		}
		r, err := s.Root(t.Context(), info, RootOptions{})
		must(t, err)
		got := tree(t, r.Sandbox().Dir.Name())
		if first == nil {
			first = got
		}
		if diff := cmp.Diff(first, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if r.Sandbox().Image.Digest != digest || !slices.Equal(r.Path, []string{"/opt/bin", "/bin"}) {
			t.Errorf("%s: %+v, %v", name, r.Sandbox(), r.Path)
		}
		must(t, r.Close())
	}
	for at, want := range map[string]string{
		"/old": "", "/new": "-rw-r--r-- 2", "/new2": "-rw-r--r-- 2", "/big": "-rw-r--r-- small", "/bin": "->usr/bin",
		"/usr/bin/su": "-rwxr-xr-x ", "/dev/sda": "", "/etc/hosts": "-rw-r--r-- 127.0.0.1 localhost\n127.0.1.1 sandbox\n::",
		"/etc/resolv.conf": "-rw-r--r-- # no name server\noptions timeout:1 attem", "/srv/app/secret": "-rw----r-- ",
		"/tmp/": "dtrwxrwxrwx", "/proc/": "drwxr-xr-x", "/home/user/": "drwxr-xr-x", "/workspace/": "drwxr-xr-x", "/dev/shm/": "drwxr-xr-x",
	} {
		if at == "/tmp/" || at == "/dev/shm/" {
			want = "drwxr-xr-x" // we alone write to the host's copy
		}
		if got := first[at]; got != want {
			t.Errorf("%s: %q, want %q", at, got, want)
		}
	}
	if !strings.Contains(first["/etc/passwd"], "root:x:0:0") {
		t.Errorf("passwd: %q", first["/etc/passwd"])
	}
}

// TestNothingPrivileged looks at every file of the cache.
func TestNothingPrivileged(t *testing.T) {
	img := imagetest.New(t, sampleConfig, sampleLayers(t)...)
	dir := filepath.Join(t.TempDir(), "layout")
	img.Layout(dir)
	s := newStore(t)
	info, err := s.Get(t.Context(), ref(t, dir), PullOptions{})
	must(t, err)
	for _, o := range []RootOptions{{}, {EROFS: true}, {EROFS: true, Targets: []Target{{"/opt/new", true}}}} {
		r, err := s.Root(t.Context(), info, o)
		must(t, err)
		must(t, r.Close())
	}
	var st unix.Stat_t
	must(t, unix.Lstat(s.dir, &st))
	if st.Mode&0o7777 != 0o700 {
		t.Errorf("the store has mode %o", st.Mode)
	}
	seen := 0
	must(t, filepath.WalkDir(s.dir, func(p string, d fs.DirEntry, err error) error {
		must(t, err)
		must(t, unix.Lstat(p, &st))
		seen++
		kind := st.Mode & unix.S_IFMT
		if int(st.Uid) != os.Geteuid() || st.Mode&0o7000 != 0 || kind != unix.S_IFREG && kind != unix.S_IFDIR && kind != unix.S_IFLNK {
			t.Errorf("%s has mode %o and uid %d", p, st.Mode, st.Uid)
		}
		if kind != unix.S_IFLNK && st.Mode&0o022 != 0 {
			t.Errorf("%s: others may write", p)
		}
		return nil
	}))
	if seen < 30 {
		t.Errorf("only %d files were seen", seen)
	}
}

// TestRedirections is F11 of the attacks: an image whose mountpoints are links
// is refused, or the link is replaced; nothing outside is touched.
func TestRedirections(t *testing.T) {
	outside := t.TempDir()
	must(t, os.WriteFile(filepath.Join(outside, "shadow"), []byte("canary"), 0o644))
	before := tree(t, outside)
	for _, name := range []string{"dev", "proc", "sys", "etc", "tmp", "home", "root", "home/user", "workspace"} {
		for _, to := range []string{outside, "/", "/proc/self/fd/7", "../../../../../.." + outside, "usr"} {
			dir := filepath.Join(t.TempDir(), "layout")
			imagetest.New(t, imagetest.Config{}, imagetest.Layer(t, "usr/", name+"->"+to)).Layout(dir)
			_, err := newStore(t).Get(t.Context(), ref(t, dir), PullOptions{})
			if !errors.Is(err, sandbox.ErrDenied) || !strings.Contains(err.Error(), "/"+name) {
				t.Errorf("%s → %s: %v", name, to, err)
			}
		}
	}
	// Names that are written anew: the link goes, not what it leads to.
	for _, name := range []string{"etc/hosts", "etc/hostname", "etc/resolv.conf", "etc/passwd", "etc/group", "dev/null", "dev/shm", "dev/pts/0", "proc/self"} {
		dir := filepath.Join(t.TempDir(), "layout")
		imagetest.New(t, imagetest.Config{}, imagetest.Layer(t, "etc/", "dev/", "proc/", name+"->"+outside+"/shadow")).Layout(dir)
		s := newStore(t)
		info, err := s.Get(t.Context(), ref(t, dir), PullOptions{})
		must(t, err)
		r, err := s.Root(t.Context(), info, RootOptions{})
		must(t, err)
		if got := tree(t, r.Sandbox().Dir.Name())["/"+name]; strings.HasPrefix(got, "->") {
			t.Errorf("%s is still a link: %s", name, got)
		}
		must(t, r.Close())
	}
	// Targets of mounts.
	dir := filepath.Join(t.TempDir(), "layout")
	imagetest.New(t, imagetest.Config{}, imagetest.Layer(t, "data->"+outside, "file=x")).Layout(dir)
	s := newStore(t)
	info, err := s.Get(t.Context(), ref(t, dir), PullOptions{})
	must(t, err)
	for _, target := range []Target{{"/data", true}, {"/data/new", true}, {"/file", true}, {"/file/x", false}, {"/usr/../x", true}, {"/proc/x", true}} {
		for _, erofs := range []bool{true, false} {
			if _, err := s.Root(t.Context(), info, RootOptions{EROFS: erofs, Targets: []Target{target}}); !errors.Is(err, sandbox.ErrInvalid) {
				t.Errorf("target %s: %v", target.Path, err)
			}
		}
	}
	if diff := cmp.Diff(before, tree(t, outside)); diff != "" {
		t.Errorf("outside was changed: %s", diff)
	}
}

// TestHostileNames is F10: nothing outside of the cache, and nothing stays.
func TestHostileNames(t *testing.T) {
	outside := t.TempDir()
	for name, lines := range map[string][]any{
		"up":                 {"../../evil=1"},
		"link, then through": {"d->" + outside, "d/evil=1", "d2->../../../../../../../.." + outside, "d2/evil=1"},
		"hard link":          {"h=>" + outside + "/x"},
		"set-id":             {tar.Header{Typeflag: tar.TypeReg, Name: "su", Mode: 0o4755}, "../x=1"},
	} {
		dir := filepath.Join(t.TempDir(), "layout")
		imagetest.New(t, imagetest.Config{}, imagetest.Layer(t, lines...)).Layout(dir)
		s := newStore(t)
		info, err := s.Get(t.Context(), ref(t, dir), PullOptions{})
		if err == nil { // an absolute link means the image's own root
			r, rerr := s.Root(t.Context(), info, RootOptions{})
			must(t, rerr)
			must(t, r.Close())
		} else if !errors.Is(err, sandbox.ErrDenied) {
			t.Errorf("%s: %v", name, err)
		} else if left := entries(t, s.dir); !slices.Equal(left, []string{"names"}) {
			t.Errorf("%s: left behind: %v", name, left)
		}
		if left := entries(t, outside); len(left) > 0 {
			t.Errorf("%s: outside: %v", name, left)
		}
	}
}

// TestTagsStay wants a tag to mean what it meant until it is pulled again.
func TestTagsStay(t *testing.T) {
	host := imagetest.Registry(t)
	name := host + "/acme/tool:latest"
	a := imagetest.New(t, imagetest.Config{}, imagetest.Layer(t, "v=1"))
	b := imagetest.New(t, imagetest.Config{}, imagetest.Layer(t, "v=2"))
	a.Push(name)
	s := newStore(t)
	get := func(f func(context.Context, reference.Ref, PullOptions) (*Stored, error), want string) {
		t.Helper()
		if info, err := f(t.Context(), ref(t, name), PullOptions{}); err != nil || info.Digest != want {
			t.Errorf("%+v, %v, want %s", info, err, want)
		}
	}
	get(s.Get, a.Digest())
	b.Push(name)
	get(s.Get, a.Digest())
	get(s.Pull, b.Digest())
	get(s.Get, b.Digest())
	list, err := s.List()
	must(t, err)
	if len(list) != 2 || len(list[0].Names)+len(list[1].Names) != 1 {
		t.Errorf("%+v, %+v", list[0], list[1])
	}
	gone, err := s.Prune(false)
	if err != nil || len(gone) != 1 || gone[0].Digest != a.Digest() {
		t.Errorf("pruned %v, %v", gone, err)
	}
	get(s.Get, b.Digest())
	if gone, err = s.Prune(true); err != nil || len(gone) != 1 {
		t.Errorf("pruned %v, %v", gone, err)
	}
	if left := entries(t, s.dir); !slices.Equal(left, []string{"names"}) || len(entries(t, s.dir+"/names")) > 0 {
		t.Errorf("left: %v", left)
	}
}

// TestUsedImagesStay removes and prunes what a sandbox holds.
func TestUsedImagesStay(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "layout")
	imagetest.New(t, imagetest.Config{}, imagetest.Layer(t, "v=1")).Layout(dir)
	s := newStore(t)
	info, err := s.Get(t.Context(), ref(t, dir), PullOptions{})
	must(t, err)
	r, err := s.Root(t.Context(), info, RootOptions{EROFS: true})
	must(t, err)
	if err := s.Remove(info); !errors.Is(err, sandbox.ErrUnavailable) {
		t.Errorf("removed while it was used: %v", err)
	}
	if gone, err := s.Prune(true); len(gone) > 0 || err != nil {
		t.Errorf("pruned while it was used: %v, %v", gone, err)
	}
	list, err := s.List()
	if err != nil || len(list) != 1 || !list[0].InUse {
		t.Errorf("%+v, %v", list, err)
	}
	must(t, r.Close())
	must(t, s.Remove(info))
	if _, err := s.Root(t.Context(), info, RootOptions{}); !errors.Is(err, sandbox.ErrNotFound) {
		t.Errorf("a removed image: %v", err)
	}
}

// TestPulledWhilePruned has an image get a name between the look at the list, in which
// it has none, and its removal.
func TestPulledWhilePruned(t *testing.T) {
	name := imagetest.Registry(t) + "/acme/tool:latest"
	img := imagetest.New(t, imagetest.Config{}, imagetest.Layer(t, "v=1"))
	img.Push(name)
	dir := filepath.Join(t.TempDir(), "layout")
	img.Layout(dir)
	s := newStore(t)
	nameless, err := s.Get(t.Context(), ref(t, dir), PullOptions{})
	must(t, err)
	_, err = s.Pull(t.Context(), ref(t, name), PullOptions{})
	must(t, err)
	if s.remove(nameless, false) == nil {
		t.Error("an image that was just pulled was removed as one without a name")
	}
	if digest, err := s.resolve(ref(t, name), ""); err != nil || digest != img.Digest() {
		t.Errorf("its name leads to %q, %v", digest, err)
	}

	// The same image is pulled again while it is removed: its name is the new one's.
	s.onGone = func() {
		_, err := s.Pull(t.Context(), ref(t, name), PullOptions{})
		must(t, err)
	}
	must(t, s.Remove(nameless))
	if digest, err := s.resolve(ref(t, name), ""); err != nil || digest != img.Digest() {
		t.Errorf("its name leads to %q, %v", digest, err)
	}
}

// TestHalfAName has a process die while it wrote what a name means: it means nothing,
// and goes with the next prune.
func TestHalfAName(t *testing.T) {
	name := imagetest.Registry(t) + "/acme/tool:latest"
	a := imagetest.New(t, imagetest.Config{}, imagetest.Layer(t, "v=1"))
	a.Push(name)
	s := newStore(t)
	_, err := s.Pull(t.Context(), ref(t, name), PullOptions{})
	must(t, err)
	half := filepath.Join(s.dir, "names", tempPrefix+"1")
	text, err := os.ReadFile(s.nameFile(ref(t, name), ""))
	must(t, err)
	must(t, os.WriteFile(half, text, 0o600))
	old := time.Now().Add(-2 * staleTemp)
	must(t, os.Chtimes(half, old, old))

	b := imagetest.New(t, imagetest.Config{}, imagetest.Layer(t, "v=2"))
	b.Push(name)
	_, err = s.Pull(t.Context(), ref(t, name), PullOptions{})
	must(t, err)
	gone, err := s.Prune(false)
	if err != nil || len(gone) != 1 || gone[0].Digest != a.Digest() {
		t.Errorf("pruned %v, %v", gone, err)
	}
	if left := entries(t, filepath.Join(s.dir, "names")); len(left) != 1 {
		t.Errorf("left: %v", left)
	}
	if digest, err := s.resolve(ref(t, name), ""); err != nil || digest != b.Digest() {
		t.Errorf("its name leads to %q, %v", digest, err)
	}
}

// TestLookedAtIsNotUsed lists an image while others do, and while it is removed: who
// looks whether it is used does not use it.
func TestLookedAtIsNotUsed(t *testing.T) {
	s := newStore(t)
	put := func() {
		f, err := s.images().tree(t.Context(), "0000", func(_ context.Context, dir string) error {
			return os.WriteFile(filepath.Join(dir, infoName), []byte(`{"digest": "sha256:0000"}`), 0o600)
		})
		must(t, err)
		must(t, f.Close())
	}
	put()
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			for range 50 {
				if list, err := s.List(); err != nil || len(list) != 1 || list[0].InUse {
					t.Errorf("%v, %v: nobody uses it", list, err)
					return
				}
			}
		})
	}
	all.Wait()

	stop := make(chan struct{})
	for range 3 {
		all.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if _, err := s.List(); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for range 30 {
		if !s.images().remove(s.images().prefix+"0000", nil) {
			t.Error("it was not removed, though nobody uses it")
			break
		}
		put()
	}
	close(stop)
	all.Wait()
}

// TestPullersRace wants one unpacking for many who want the same.
func TestPullersRace(t *testing.T) {
	host := imagetest.Registry(t)
	name := host + "/x:1"
	imagetest.New(t, imagetest.Config{}, imagetest.Layer(t, "v="+strings.Repeat("x", 1<<20))).Push(name)
	dir := filepath.Join(t.TempDir(), "images")
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			s, err := OpenStore(dir)
			if err == nil {
				var info *Stored
				if info, err = s.Get(t.Context(), ref(t, name), PullOptions{}); err == nil {
					var r *Root
					if r, err = s.Root(t.Context(), info, RootOptions{EROFS: i%2 == 0}); err == nil {
						err = r.Close()
					}
				}
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, e := range entries(t, dir) {
		if strings.HasPrefix(e, tempPrefix) {
			t.Errorf("%s was left behind", e)
		}
	}
}

// TestRegistryHangsUp cuts the first answers with a layer short.
func TestRegistryHangsUp(t *testing.T) {
	host := imagetest.Registry(t)
	img := imagetest.New(t, imagetest.Config{}, imagetest.Layer(t, "v="+strings.Repeat("0123456789", 200_000)))
	img.Push(host + "/x:1")
	layers, err := img.Layers()
	must(t, err)
	hash, err := layers[0].Digest()
	must(t, err)
	for cuts, ok := range map[int]bool{pullTries - 1: true, pullTries: false} {
		asked := 0
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			resp, err := http.Get("http://" + host + r.URL.Path)
			if err != nil {
				t.Error(err)
				return
			}
			defer resp.Body.Close()
			b, _ := io.ReadAll(resp.Body)
			w.Header().Set("Content-Type", resp.Header.Get("Content-Type"))
			w.Header().Set("Content-Length", strconv.Itoa(len(b)))
			w.WriteHeader(resp.StatusCode)
			if strings.HasSuffix(r.URL.Path, hash.String()) {
				if asked++; asked <= cuts {
					w.Write(b[:len(b)/2])
					panic(http.ErrAbortHandler)
				}
			}
			w.Write(b)
		}))
		st := newStore(t)
		_, err := st.Get(t.Context(), ref(t, strings.TrimPrefix(s.URL, "http://")+"/x:1"), PullOptions{})
		if ok && err != nil || !ok && (!errors.Is(err, sandbox.ErrUnavailable) || !strings.Contains(sandbox.Hint(err), "network")) {
			t.Errorf("cut %d times: %v", cuts, err)
		}
		if _, err := st.Prune(false); err != nil {
			t.Errorf("pruned: %v", err)
		}
		if left := entries(t, st.dir); !ok && !slices.Equal(left, []string{"names"}) {
			t.Errorf("left behind: %v", left)
		}
		s.Close()
	}
}

// TestFurtherMountpoints wants an image with more mountpoints, and itself
// unchanged.
func TestFurtherMountpoints(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "layout")
	imagetest.New(t, imagetest.Config{}, sampleLayers(t)...).Layout(dir)
	s := newStore(t)
	info, err := s.Get(t.Context(), ref(t, dir), PullOptions{})
	must(t, err)
	open := func(targets ...Target) *Root {
		r, err := s.Root(t.Context(), info, RootOptions{EROFS: true, Targets: targets})
		must(t, err)
		t.Cleanup(func() { r.Close() })
		return r
	}
	plain := open(Target{"/tmp", true}, Target{"/home/user", true}, Target{"/home/user/data.csv", false}, Target{"/srv/app", true})
	before, err := os.ReadFile(plain.root.Image.EROFS.Name())
	must(t, err)
	more := open(Target{"/opt/a/b", true}, Target{"/etc/app.conf", false})
	again := open(Target{"/etc/app.conf", false}, Target{"/opt/a/b", true})
	if more.root.Image.EROFS.Name() != again.root.Image.EROFS.Name() {
		t.Error("the same mountpoints made two images")
	}
	n, err := readTree(more.root.Image.EROFS)
	must(t, err)
	for _, p := range []string{"/opt/a/b", "/etc/app.conf", "/srv/app/secret", "/etc/passwd"} {
		if _, err := n.Lookup(p); err != nil {
			t.Errorf("%s: %v", p, err)
		}
	}
	big, err := n.Lookup("/new")
	must(t, err)
	if b, err := readAll(more.root.Image.EROFS, big); err != nil || string(b) != "2" {
		t.Errorf("%q, %v", b, err)
	}
	after, err := os.ReadFile(plain.root.Image.EROFS.Name())
	if err != nil || string(before) != string(after) {
		t.Error("the image was changed")
	}
}

func TestWhoRuns(t *testing.T) {
	passwd := []byte("root:x:0:0::/root:/bin/sh\nnode:x:1000:1001::/home/node:/bin/sh\napp:x:77:78::/:/bin/sh\nbroken\nbad:x:-1:0::/:\nbig:x:99999999999:1::/:\n")
	group := []byte("root:x:0:\nstaff:x:50:node\n")
	for _, tt := range []struct {
		user, passwd string
		want         sandbox.User
		add          bool
	}{
		{"", "all", sandbox.User{UID: 1000, GID: 1001, Name: "node"}, false},
		{"root", "all", sandbox.User{UID: 1000, GID: 1001, Name: "node"}, false},
		{"0:0", "all", sandbox.User{UID: 1000, GID: 1001, Name: "node"}, false},
		{"", "", sandbox.User{UID: 1000, GID: 1000, Name: "user"}, true},
		{"app", "all", sandbox.User{UID: 77, GID: 78, Name: "app"}, false},
		{"app:staff", "all", sandbox.User{UID: 77, GID: 50, Name: "app"}, false},
		{"77:9", "all", sandbox.User{UID: 77, GID: 9, Name: "app"}, false},
		{"65532", "all", sandbox.User{UID: 65532, GID: 65532, Name: "user"}, true},
		{"65532:65533", "", sandbox.User{UID: 65532, GID: 65533, Name: "user"}, true},
	} {
		text := passwd
		if tt.passwd == "" {
			text = nil
		}
		u, add, err := whoRuns(tt.user, text, group)
		tt.want.Home = "/home/user"
		if err != nil || u != tt.want || (add != "") != tt.add {
			t.Errorf("%s: %+v, %q, %v", tt.user, u, add, err)
		}
	}
	for _, user := range []string{"nobody-here", "app:no-such-group", "-5", "99999999999", "a:b:c", "app:-1"} {
		if u, _, err := whoRuns(user, passwd, group); !errors.Is(err, sandbox.ErrInvalid) {
			t.Errorf("%s: %+v, %v", user, u, err)
		}
	}
}

func TestCommand(t *testing.T) {
	none, sh := "", "/bin/sh"
	i := &Stored{}
	i.Config.Entrypoint, i.Config.Cmd = []string{"entry", "-x"}, []string{"cmd"}
	for want, got := range map[string][]string{
		"entry -x cmd": i.Command(nil, nil),
		"entry -x a b": i.Command(nil, []string{"a", "b"}),
		"/bin/sh a":    i.Command(&sh, []string{"a"}),
		"/bin/sh":      i.Command(&sh, nil),
		"a b":          i.Command(&none, []string{"a", "b"}),
		"":             i.Command(&none, nil),
	} {
		if strings.Join(got, " ") != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// BenchmarkUse is what a run pays for an image that is here.
func BenchmarkUse(b *testing.B) {
	img := imagetest.New(b, sampleConfig, sampleLayers(b)...)
	dir := filepath.Join(b.TempDir(), "layout")
	img.Layout(dir)
	host := imagetest.Registry(b)
	img.Push(host + "/x:1")
	s := newStore(b)
	for name, from := range map[string]string{"name": host + "/x:1", "layout": dir} {
		for what, targets := range map[string][]Target{"": nil, ", new mountpoint": {{"/etc/new", false}}} {
			b.Run(name+what, func(b *testing.B) {
				for b.Loop() {
					info, err := s.Get(b.Context(), ref(b, from), PullOptions{})
					must(b, err)
					r, err := s.Root(b.Context(), info, RootOptions{EROFS: true, Targets: append(targets, Target{"/tmp", true})})
					must(b, err)
					must(b, r.Close())
				}
			})
		}
	}
}

// TestKnownFromBefore reads what was written when keys were spelled as in Go.
func TestKnownFromBefore(t *testing.T) {
	s := newStore(t)
	f, err := s.images().tree(t.Context(), "0000", func(_ context.Context, dir string) error {
		return os.WriteFile(filepath.Join(dir, infoName), []byte(`{"digest": "sha256:0000", "user": {"UID": 7, "GID": 8, "Name": "ada", "Home": "/h"}, "left_out": {"Devices": 1, "SetID": 2, "Xattrs": 3}}`), 0o600)
	})
	must(t, err)
	must(t, f.Close())
	info, err := s.info("sha256:0000")
	must(t, err)
	if want := (sandbox.User{UID: 7, GID: 8, Name: "ada", Home: "/h"}); info.User != want || info.Left != (fstree.Left{Devices: 1, SetID: 2, Xattrs: 3}) {
		t.Errorf("%+v, %+v", info.User, info.Left)
	}
}

// What a login gets has no name afterwards, and another call does not get it by its name.
func TestLogin(t *testing.T) {
	from := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); user != "me" || password != "canary" {
			w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		from.ServeHTTP(w, r)
	}))
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "http://")
	at, err := name.ParseReference(host + "/acme/private:1")
	must(t, err)
	must(t, remote.Write(at, imagetest.New(t, sampleConfig, sampleLayers(t)...).Image, remote.WithAuth(&authn.Basic{Username: "me", Password: "canary"})))
	s, r := newStore(t), ref(t, host+"/acme/private:1")
	login := &Login{Username: "me", Password: "canary"}
	info, held, err := s.Hold(t.Context(), r, PullOptions{Login: login})
	must(t, err)
	if list, err := s.List(); err != nil || len(list) != 1 || len(list[0].Names) != 0 {
		t.Errorf("%+v, %v", list, err)
	}
	for _, o := range []PullOptions{{}, {Owner: "key"}, {Login: &Login{Username: "me", Password: "canary2"}}} {
		if _, err := s.Get(t.Context(), r, o); !errors.Is(err, sandbox.ErrNotFound) || strings.Contains(err.Error(), "canary") {
			t.Errorf("%+v: %v", o, err)
		}
	}
	if err := s.Discard(info); err == nil {
		t.Error("one that is held was removed")
	}
	must(t, held.Close())
	must(t, s.Discard(info))
	must(t, filepath.WalkDir(s.dir, func(file string, e fs.DirEntry, err error) error {
		if b, rerr := os.ReadFile(file); rerr == nil && strings.Contains(string(b), "canary") {
			t.Errorf("%s has the password", file)
		}
		return err
	}))
}

// Where it cannot be told whether a sandbox goes on with an image, it is listed all the same,
// and stays.
func TestKeptCannotBeTold(t *testing.T) {
	s := newStore(t)
	f, err := s.images().tree(t.Context(), "0000", func(_ context.Context, dir string) error {
		return os.WriteFile(filepath.Join(dir, infoName), []byte(`{"digest": "sha256:0000"}`), 0o600)
	})
	must(t, err)
	must(t, f.Close())
	broken := errors.New("the registry cannot be used")
	s.KeepWhile(func(string) (bool, error) { return false, broken })
	list, err := s.List()
	if err != nil || len(list) != 1 || list[0].InUse {
		t.Fatalf("%v, %v", list, err)
	}
	if err := s.Remove(list[0]); !errors.Is(err, broken) {
		t.Errorf("remove: %v", err)
	}
	if gone, err := s.Prune(true); !errors.Is(err, broken) || len(gone) > 0 {
		t.Errorf("prune: %v, %v", gone, err)
	}
	if !s.Has("sha256:0000") {
		t.Error("it is gone")
	}
}
