// SPDX-License-Identifier: Apache-2.0

//go:build linux

package drivertest

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/caisson-run/caisson/sandbox"
)

var scratchTests = []test{
	{name: "modes and owners", run: testScratchModes},
	{name: "files behave", run: testFiles},
	{name: "nothing is left for the next", run: testScratchIsPrivate},
	{name: "a path of its own", run: testExtraScratch},
}

func testScratchModes(t *testing.T, s *suite, r road) {
	var got map[string]string
	s.fixture(t).python(t, r, `
say({p: '%o %d %d %s' % (stat.S_IMODE(os.stat(p).st_mode), os.stat(p).st_uid, os.stat(p).st_gid, attempt(put, p + '/x') or 'writable')
     for p in ('/home/user', '/tmp', '/dev/shm')})`, &got)
	if got["/home/user"] != "755 1000 1000 writable" {
		t.Errorf("/home/user: %s", got["/home/user"])
	}
	for _, p := range []string{"/tmp", "/dev/shm"} {
		if v := got[p]; len(v) < 5 || v[:5] != "1777 " || v[len(v)-8:] != "writable" {
			t.Errorf("%s: %s", p, v)
		}
	}
}

func testFiles(t *testing.T, s *suite, r road) {
	var got map[string]any
	s.fixture(t).python(t, r, `
import mmap, fcntl
os.chdir(os.path.expanduser('~'))
put('a', b'0123456789')
os.rename('a', 'b'); os.symlink('b', 'l'); os.link('b', 'h'); os.mkdir('d'); os.mkfifo('p')
with open('b', 'r+b') as f:
    m = mmap.mmap(f.fileno(), 10); m[0:1] = b'X'; m.flush(); m.close()
    f.seek(0, 2); f.write(b'!'); f.flush(); os.fsync(f.fileno())
    fcntl.flock(f, fcntl.LOCK_EX)
put('b', b'?', 'ab')
with open('s', 'wb') as f: f.truncate(1 << 40)
put('x', b'#!/bin/sh\necho ran\n'); os.chmod('x', 0o755)
u = socket.socket(socket.AF_UNIX); u.bind('sock')
os.rename('d', 'e')
say({'content': open('l', 'rb').read().decode(), 'links': os.stat('h').st_nlink, 'sparse': os.stat('s').st_size,
     'ran': os.popen('./x').read(), 'names': sorted(os.listdir('.')), 'missing': attempt(os.unlink, 'nope'), 'notempty': attempt(lambda: (put('e/f'), os.rmdir('e')))})`, &got)
	want := map[string]any{
		"content": "X123456789!?", "links": 2.0, "sparse": float64(1 << 40), "ran": "ran\n",
		"names": []any{"b", "e", "h", "l", "p", "s", "sock", "x"}, "missing": "ENOENT", "notempty": "ENOTEMPTY",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func testScratchIsPrivate(t *testing.T, s *suite, r road) {
	for range 2 {
		o := s.fixture(t).run(t, r, "sh", "-c", `for d in /home/user /tmp /dev/shm; do ls -A $d; echo secret > $d/left; done`).ok(t)
		if o.out != "" {
			t.Errorf("found %q", o.out)
		}
	}
}

func testExtraScratch(t *testing.T, s *suite, r road) {
	w := s.fixture(t, func(spec *sandbox.Spec) {
		spec.Scratch = append(spec.Scratch, sandbox.Scratch{Target: "/var/cache/build"}, sandbox.Scratch{Target: "/home/user/deep/below"})
	})
	o := w.run(t, r, "sh", "-c", `echo one > /var/cache/build/f && echo two > /home/user/deep/below/f && cat /var/cache/build/f /home/user/deep/below/f; touch /var/cache/f /var/f 2>/dev/null; ls /var/cache`).ok(t)
	if want := "one\ntwo\nbuild\n"; o.out != want {
		t.Errorf("%q, want %q", o.out, want)
	}
}
