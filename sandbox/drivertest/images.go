// SPDX-License-Identifier: Apache-2.0

//go:build linux

package drivertest

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/image"
	"github.com/caisson-run/caisson/image/imagetest"
	"github.com/caisson-run/caisson/image/reference"
	"github.com/caisson-run/caisson/sandbox"
)

var imageTests = []test{
	{name: "its programs run", run: testImageRuns},
	{name: "nothing of it can be changed", run: testImageReadOnly},
	{name: "names and owners", run: testImageNames},
	{name: "files are whole", run: testImageFiles},
	{name: "mounts in it", run: testImageMounts},
	{name: "nothing of the host shows", run: testImageCanaries},
}

// imagePrograms are of this host, in the image that the tests use.
var imagePrograms = []string{"sh", "cat", "id", "ls", "stat", "find", "touch", "mkdir", "rm", "chmod", "chown", "cmp", "ln", "sha256sum", "true", "env", "readlink", "grep", "tr"}

// imageFixture is a fixture whose root is an image, in the form that the level
// takes. Mounts are added to it, not to the fixture it is made from: the host's
// own tree could not be given their mountpoints.
func (s *suite) imageFixture(t *testing.T, mounts ...func(*sandbox.Spec)) *fixture {
	t.Helper()
	if !s.caps.Images {
		t.Skip("the level takes no images")
	}
	w := s.fixture(t)
	for _, m := range mounts {
		m(w.spec)
	}
	s.needMounts(t, w.spec)
	store, err := image.OpenStore(filepath.Join(s.dir, "images"))
	if err != nil {
		t.Fatal(err)
	}
	info, err := s.testImage(t.Context(), t, store)
	if err != nil {
		t.Fatal(err)
	}
	var targets []image.Target
	for _, sc := range w.spec.Scratch {
		targets = append(targets, image.Target{Path: sc.Target, Dir: true})
	}
	for _, m := range w.spec.Mounts {
		targets = append(targets, image.Target{Path: m.Target, Dir: m.Dir})
	}
	root, err := store.Root(t.Context(), info, image.RootOptions{EROFS: s.caps.EROFS, Targets: targets})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	w.spec.Root = root.Sandbox()
	w.spec.User = info.User
	w.env = []string{"HOME=" + w.spec.User.Home, "PATH=/bin"}
	return w
}

// imageID is what a careless author has left in an image.
const imageID = "cccccccccccc4ccc8ccccccccccccccc"

// testImage is a small image, made once.
func (s *suite) testImage(ctx context.Context, t *testing.T, store *image.Store) (*image.Stored, error) {
	dir := filepath.Join(s.dir, "layout")
	if _, err := os.Stat(dir); err != nil {
		own := func(h tar.Header) tar.Header { h.Uid, h.Gid = 1000, 1000; return h }
		imagetest.New(t, imagetest.Config{},
			imagetest.Programs(t, imagePrograms...),
			imagetest.Layer(t, "etc/", "etc/passwd=root:x:0:0::/root:/bin/sh\napp:x:1000:1000::/srv:/bin/sh\n", "etc/hosts=10.9.8.7 "+canary+"\n", "etc/machine-id="+imageID+"\n",
				"var/", "var/lib->/workspace", "data/", "data/small=some text\n", "data/large="+strings.Repeat("0123456789abcdef", 100_000), "data/twice=>data/small", "data/link->small",
				"data/out->/etc/shadow", "data/gone=x", own(tar.Header{Typeflag: tar.TypeDir, Name: "data/own/", Mode: 0o755}),
				own(tar.Header{Typeflag: tar.TypeReg, Name: "data/own/secret", Mode: 0o600}), tar.Header{Typeflag: tar.TypeReg, Name: "data/roots", Mode: 0o600},
				tar.Header{Typeflag: tar.TypeReg, Name: "data/setid", Mode: 0o6755}),
			imagetest.Layer(t, "data/.wh.gone=", "data/new=2"),
		).Layout(dir)
	}
	r, err := reference.Parse(dir)
	if err != nil {
		return nil, err
	}
	return store.Get(ctx, r, image.PullOptions{})
}

func testImageRuns(t *testing.T, s *suite, r road) {
	w := s.imageFixture(t)
	r, end := s.lasting(t, r, w)
	defer end()
	if o := w.run(t, r, "sh", "-c", "cat /data/small; exit 7"); o.out != "some text\n" || o.ExitCode == nil || *o.ExitCode != 7 {
		t.Errorf("%+v, %q, %q", o.Result, o.out, o.errs)
	}
	if o := w.run(t, r, "/data/no-such-program"); o.ExitCode == nil || *o.ExitCode != 127 {
		t.Errorf("a program that is not there: %+v", o.Result)
	}
	if o := w.run(t, r, "sh", "-c", "echo x > $HOME/a && cat $HOME/a && echo y > /tmp/b && cat /tmp/b && echo z > /dev/shm/c && cat /dev/shm/c").ok(t); o.out != "x\ny\nz\n" {
		t.Errorf("scratch: %q", o.out)
	}
}

func testImageReadOnly(t *testing.T, s *suite, r road) {
	o := s.imageFixture(t).run(t, r, "sh", "-c", `for d in / /etc /data /data/own /usr/bin /workspace /root /srv /proc /sys /dev; do
  (echo x > $d/caisson-x) 2>/dev/null && echo "wrote $d"; mkdir $d/caisson-d 2>/dev/null && echo "made $d"; ln -s x $d/caisson-l 2>/dev/null && echo "linked $d"
done
(echo x >> /data/own/secret) 2>/dev/null && echo appended; rm -f /data/own/secret 2>/dev/null && echo removed; chmod 777 /data/own 2>/dev/null && echo chmod; touch /data/own/secret 2>/dev/null && echo touched; true`)
	if o.out != "" {
		t.Errorf("%s", o.out)
	}
}

func testImageNames(t *testing.T, s *suite, r road) {
	o := s.imageFixture(t).run(t, r, "sh", "-c", `id -un; id -u; cat /data/own/secret >/dev/null && echo own; cat /data/roots 2>/dev/null && echo roots
stat -c %a /data/setid; grep -v ip6- /etc/hosts | tr '\t' ' '; cat /etc/hostname; ls -d /proc/self /dev/null /workspace`)
	out := o.out
	if !s.caps.EROFS && os.Geteuid() != 0 {
		// The unpacked tree belongs to the user who unpacked it.
		out = strings.Replace(out, "roots\n", "", 1)
	}
	want := "app\n1000\nown\n755\n127.0.0.1 localhost\n127.0.1.1 sandbox\nsandbox\n/dev/null\n/proc/self\n/workspace\n"
	if s.programs != nil && !s.caps.EROFS { // the engine's own are shown
		want = strings.Replace(want, "127.0.1.1 sandbox\n", "", 1)
	}
	if out != want {
		t.Errorf("%q, want %q (%s)", o.out, want, o.errs)
	}
}

func testImageFiles(t *testing.T, s *suite, r road) {
	o := s.imageFixture(t).run(t, r, "sh", "-c", `sha256sum < /data/large; cmp /data/small /data/twice && echo same; cat /data/link; readlink /data/out; ls /data`)
	sum := fmt.Sprintf("%x  -", sha256.Sum256([]byte(strings.Repeat("0123456789abcdef", 100_000))))
	lines := strings.Split(o.out, "\n")
	if len(lines) < 4 || lines[0] != sum || lines[1] != "same" || lines[2] != "some text" || lines[3] != "/etc/shadow" {
		t.Fatalf("%q, %q", o.out, o.errs)
	}
	if got := strings.Join(lines[4:], " "); got != "large link new out own roots setid small twice " {
		t.Errorf("%q", got)
	}
}

func testImageMounts(t *testing.T, s *suite, r road) {
	dir := s.path(t)
	file := filepath.Join(dir, "in")
	if err := os.WriteFile(file, []byte("from the host"), 0o644); err != nil {
		t.Fatal(err)
	}
	w := s.imageFixture(t,
		mount(t, file, home+"/file", sandbox.ReadOnly),
		mount(t, file, "/etc/app.conf", sandbox.ReadOnly),
		mount(t, file, "/data/small", sandbox.ReadOnly),
		mount(t, dir, "/workspace", sandbox.ReadOnly),
		mount(t, dir, "/opt/not/there", sandbox.ReadOnly),
	)
	o := w.run(t, r, "sh", "-c", `cat $HOME/file /etc/app.conf /data/small /workspace/in /opt/not/there/in; ls /data; (echo x > /opt/not/there/y) 2>/dev/null && echo wrote; true`).ok(t)
	if want := strings.Repeat("from the host", 5) + "large\nlink\nnew\nout\nown\nroots\nsetid\nsmall\ntwice\n"; o.out != want {
		t.Errorf("%q, want %q (%s)", o.out, want, o.errs)
	}
}

func testImageCanaries(t *testing.T, s *suite, r road) {
	o := s.imageFixture(t).run(t, r, "sh", "-c", `cat "$1" /proc/1/root"$1" /data/out /etc/hosts; find / -name 'drivertest*' 2>/dev/null; env; true`, "sh", filepath.Join(s.dir, "canary"))
	if strings.Contains(o.out, canary) || strings.Contains(o.out, "drivertest") {
		t.Errorf("%q", o.out)
	}
}
