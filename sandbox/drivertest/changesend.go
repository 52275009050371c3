// SPDX-License-Identifier: Apache-2.0

//go:build linux

package drivertest

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/caisson-run/caisson/sandbox"
)

// testChangesLarge: who reads a layer needs no memory for what is in it.
func testChangesLarge(t *testing.T, s *suite, r road) {
	s.needChanges(t)
	if s.caps.ScratchInMemory {
		s.lacks(t, "what is written counts as memory")
	}
	w := s.fixture(t, mount(t, tree(t, s), "/data", sandbox.CopyOnWrite), limit(func(l *sandbox.Limits) { l.Memory = 64 * mib }))
	o, l := s.changing(t, timeout(t), r, w, w.exec("python3", "-I", "-S", "-c", prelude+`
import hashlib
digest = hashlib.sha256()
with open('/data/large', 'wb', 0) as f:
    for i in range(200):
        block = b'%08d' % i * (1 << 17)
        digest.update(block); f.write(block)
print(digest.hexdigest())`))
	o.ok(t)
	l.whole(t, "/data")
	if got := l.layers["/data"]["large"].content; got != strings.TrimSpace(o.out) {
		t.Errorf("the layer has %.80q, want %q", got, o.out)
	}
}

func testChangesTimeout(t *testing.T, s *suite, r road) {
	s.needChanges(t)
	w := s.fixture(t, mount(t, tree(t, s), "/data", sandbox.CopyOnWrite))
	ctx, cancel := context.WithCancel(timeout(t))
	defer cancel()
	x := w.exec("sh", "-c", "echo kept > /data/before; (trap '' TERM INT; while :; do echo x; done) & (exec setsid sleep 1000) & sleep 1000 & kill -STOP $!; wait")
	x.Stdout = &firstWrite{then: cancel}
	o, l := s.changing(t, ctx, r, w, x)
	if o.Signal == "" || o.ExitCode != nil { // the agent's end makes an orphan of what is stopped, which is hung up on
		t.Errorf("it ended so: %s", o.describe())
	}
	l.whole(t, "/data")
	if got := l.layers["/data"]["before"].content; got != "kept\n" {
		t.Errorf("%q was kept", got)
	}
}

// firstWrite calls a function once something was written.
type firstWrite struct {
	once sync.Once
	then func()
}

func (f *firstWrite) Write(p []byte) (int, error) {
	f.once.Do(f.then)
	return len(p), nil
}

// testChangesMemory: a layer that is told is whole, or says that it is not.
func testChangesMemory(t *testing.T, s *suite, r road) {
	s.needChanges(t)
	s.need(t, sandbox.LimitMemory)
	w := s.fixture(t, mount(t, tree(t, s), "/data", sandbox.CopyOnWrite), limit(func(l *sandbox.Limits) { l.Memory = 96 * mib }))
	o, l := s.changing(t, timeout(t), r, w, w.exec("python3", "-I", "-S", "-c", prelude+`
put('/data/before', b'kept\n')
x = []
while True: x.append(bytearray(os.urandom(1 << 20)))`))
	if s.caps.Limits[sandbox.LimitMemory].Enforcement != sandbox.Emulated || !strings.Contains(o.errs, "MemoryError") {
		o.exceeded(t, sandbox.LimitMemory)
	}
	if got, ok := l.layers["/data"]; ok && l.errs["/data"] == nil && got["before"].content != "kept\n" {
		t.Errorf("a layer that seems whole has %v", got)
	}
}

// testChangesAgain: a living sandbox goes on after it was read, and nothing of it that is
// no such mount is.
func testChangesAgain(t *testing.T, s *suite, r road) {
	s.needChanges(t)
	w := s.fixture(t, mount(t, tree(t, s), "/data", sandbox.CopyOnWrite), mount(t, tree(t, s), "/home/user/only", sandbox.ReadOnly))
	inst, err := s.driver.Start(timeout(t), w.spec)
	if err != nil {
		t.Fatal(err)
	}
	defer inst.Destroy(context.WithoutCancel(t.Context()))
	for _, target := range []string{"/", "/data/sub", "/home/user", "/home/user/only", "/nowhere", "data", ""} {
		if _, err := readChanges(t, inst, target); !errors.Is(err, sandbox.ErrInvalid) {
			t.Errorf("the changes of %q: %v", target, err)
		}
	}
	for _, want := range []string{"one\n", "two\n"} {
		client, err := dial(timeout(t), inst, w.spec)
		if err != nil {
			select {
			case <-inst.Ended():
				s.lacks(t, "reading changes ends a sandbox that cannot stand still")
			default:
				t.Fatal(err)
			}
		}
		if exit, err := client.Run(timeout(t), w.exec("sh", "-c", "printf '"+want+"' > /data/now")); err != nil || exit.Code == nil || *exit.Code != 0 {
			t.Fatalf("%+v, %v", exit, err)
		}
		client.Close()
		got, err := readChanges(t, inst, "/data")
		if err != nil || got["now"].content != want {
			t.Errorf("%v, %v, want %q", got, err, want)
		}
	}
	if err := inst.Destroy(timeout(t)); err != nil {
		t.Fatal(err)
	}
}
