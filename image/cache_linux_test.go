// SPDX-License-Identifier: Apache-2.0

package image

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/sandbox"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv("CAISSON_TEST_BUILD"); dir != "" {
		buildForEver(dir)
	}
	os.Exit(m.Run())
}

// TestCacheFollowsTheHost changes the host in every way that matters and
// wants another tree each time, and the same one when nothing changed.
func TestCacheFollowsTheHost(t *testing.T) {
	root := fakeHost(t, debian...)
	cache := filepath.Join(t.TempDir(), "cache")
	at := func(p string) string { return filepath.Join(root, p) }
	name := func(o HostOptions) string {
		o.Cache = cache
		r, err := build(t, root, o)
		must(t, err)
		return r.Sandbox().Dir.Name()
	}
	last := name(HostOptions{})
	seen := map[string]bool{last: true}
	// The kernel's clock for files may stand still for some milliseconds;
	// what is changed here changes size or inode too, as real changes do.
	for what, change := range map[string]func() error{
		"a file's text":  func() error { return os.WriteFile(at("etc/magic"), []byte("longer than before"), 0o644) },
		"a new file":     func() error { return os.WriteFile(at("etc/ssl/certs/new.pem"), []byte("x"), 0o644) },
		"a removed file": func() error { return os.Remove(at("etc/ssl/certs/a.pem")) },
		"a link's target": func() error {
			return errors.Join(os.Remove(at("etc/localtime")), os.Symlink("/usr/x", at("etc/localtime")))
		},
		"a file's mode":      func() error { return os.Chmod(at("etc/services"), 0o600) },
		"a new entry":        func() error { return os.WriteFile(at("etc/inputrc"), nil, 0o644) },
		"a top-level link":   func() error { return errors.Join(os.Remove(at("lib64")), os.Symlink("usr/lib", at("lib64"))) },
		"a new directory":    func() error { return os.Mkdir(at("lib32"), 0o755) },
		"the shell vanished": func() error { return os.Remove(at("usr/bin/bash")) },
	} {
		must(t, change())
		now := name(HostOptions{})
		if seen[now] {
			t.Errorf("%s: the old tree was used", what)
		}
		seen[now] = true
		if again := name(HostOptions{}); again != now {
			t.Errorf("%s: nothing changed but the tree was built again", what)
		}
		last = now
	}
	must(t, os.WriteFile(at("etc/shadow"), []byte("changed"), 0o600))
	must(t, os.WriteFile(at("usr/bin/new"), []byte("changed"), 0o755))
	if now := name(HostOptions{}); now != last {
		t.Error("a change of what is not copied built another tree")
	}
	for what, o := range map[string]HostOptions{"host name": {Hostname: "other"}, "user": {User: sandbox.RootUser()}, "target": {Targets: []Target{{"/new", true}}}} {
		if seen[name(o)] {
			t.Errorf("another %s used the old tree", what)
		}
	}
}

func TestCacheIsPrivate(t *testing.T) {
	root := fakeHost(t, "usr/")
	dir := t.TempDir()
	open, link, file := filepath.Join(dir, "open"), filepath.Join(dir, "link"), filepath.Join(dir, "file")
	must(t, os.Mkdir(open, 0o700))
	must(t, os.Chmod(open, 0o755))
	must(t, os.Mkdir(filepath.Join(dir, "own"), 0o700))
	must(t, os.Symlink("own", link))
	must(t, os.WriteFile(file, nil, 0o600))
	cases := map[string]string{"entered by others": open, "link": link, "file": file}
	if os.Getuid() == 0 {
		other := filepath.Join(dir, "other")
		must(t, os.Mkdir(other, 0o700))
		must(t, os.Chown(other, 65534, 65534))
		cases["another user's"] = other
	}
	for name, cache := range cases {
		if _, err := build(t, root, HostOptions{Cache: cache}); !errors.Is(err, sandbox.ErrInvalid) || sandbox.Hint(err) == "" {
			t.Errorf("%s: got %v, want ErrInvalid with a hint", name, err)
		}
	}
	if _, err := build(t, root, HostOptions{Cache: filepath.Join(dir, "no/such")}); !errors.Is(err, sandbox.ErrUnavailable) {
		t.Errorf("missing parent: got %v", err)
	}
}

// TestBuildersRace lets many build and use the same and different trees while
// the pruner works, and wants each to hold a complete tree.
func TestBuildersRace(t *testing.T) {
	root := fakeHost(t, debian...)
	cache := filepath.Join(t.TempDir(), "cache")
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 12 {
				host := "shared"
				if j%3 == 0 {
					host = strings.Repeat("x", 1+i*6+j%6)
				}
				r, err := Host(t.Context(), HostOptions{Cache: cache, root: root, Hostname: host})
				if err != nil {
					t.Error(err)
					return
				}
				b, err := os.ReadFile(r.Sandbox().Dir.Name() + "/etc/hostname")
				if err != nil || string(b) != host+"\n" {
					t.Errorf("got %q, %v", b, err)
				}
				r.Close()
			}
		})
	}
	wg.Wait()
	for _, e := range entries(t, cache) {
		if strings.HasPrefix(e, tempPrefix) {
			t.Errorf("%s was left behind", e)
		}
	}
}

// TestBuiltOnce lets many want a tree that is not there: one builds it, and a
// second only when the first has failed.
func TestBuiltOnce(t *testing.T) {
	c, err := openCache(filepath.Join(t.TempDir(), "cache"))
	must(t, err)
	var built atomic.Int32
	inside, others := make(chan struct{}), make(chan struct{})
	write := func(_ context.Context, dir string) error {
		if built.Add(1) == 1 {
			close(inside)
			<-others
			return errors.New("the first fails")
		}
		return os.WriteFile(filepath.Join(dir, "file"), nil, 0o600)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := c.tree(t.Context(), "k", write); err == nil {
			t.Error("the first did not fail")
		}
	})
	<-inside
	// Another tree is not waited for, nor is this one by who gives up.
	other, err := c.tree(t.Context(), "other", func(context.Context, string) error { return nil })
	must(t, err)
	other.Close()
	impatient, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.tree(impatient, "k", write); !errors.Is(err, sandbox.ErrUnavailable) || !errors.Is(err, context.Canceled) {
		t.Errorf("who gives up: %v", err)
	}
	for range 8 {
		wg.Go(func() {
			f, err := c.tree(t.Context(), "k", write)
			if err != nil {
				t.Error(err)
				return
			}
			f.Close()
		})
	}
	close(others)
	wg.Wait()
	if n := built.Load(); n != 2 {
		t.Errorf("built %d times, want 2", n)
	}
}

// TestDeadBuilder kills who builds a tree: the next one does not wait.
func TestDeadBuilder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cache")
	c, err := openCache(dir)
	must(t, err)
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), "CAISSON_TEST_BUILD="+dir)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Error(err)
	}
	waits, cancel := context.WithCancel(t.Context())
	got := make(chan error)
	go func() {
		_, err := c.tree(waits, "k", func(context.Context, string) error { return nil })
		got <- err
	}()
	cancel()
	if err := <-got; !errors.Is(err, sandbox.ErrUnavailable) {
		t.Errorf("beside who builds: %v", err)
	}
	must(t, cmd.Process.Kill())
	_ = cmd.Wait()
	f, err := c.tree(t.Context(), "k", func(context.Context, string) error { return nil })
	must(t, err)
	f.Close()
}

// buildForEver is the builder that is killed.
func buildForEver(dir string) {
	c, err := openCache(dir)
	if err == nil {
		_, err = c.tree(context.Background(), "k", func(context.Context, string) error {
			fmt.Println("building")
			select {}
		})
	}
	panic(err)
}

// entries is what is in a cache, but the file whose bytes are locks.
func entries(t *testing.T, dir string) (names []string) {
	t.Helper()
	es, err := os.ReadDir(dir)
	must(t, err)
	for _, e := range es {
		if e.Name() != buildingName {
			names = append(names, e.Name())
		}
	}
	return names
}

// TestPruneKeepsWhatIsUsed makes more trees than are kept, the first one held.
func TestPruneKeepsWhatIsUsed(t *testing.T) {
	root := fakeHost(t, "usr/")
	cache := filepath.Join(t.TempDir(), "cache")
	held, err := build(t, root, HostOptions{Cache: cache, Hostname: "held"})
	must(t, err)
	old := time.Now().Add(-100 * time.Hour)
	must(t, os.Chtimes(held.Sandbox().Dir.Name(), old, old))
	must(t, os.Mkdir(filepath.Join(cache, tempPrefix+"dead"), 0o700))
	must(t, os.Chtimes(filepath.Join(cache, tempPrefix+"dead"), old, old))
	for i := range keepTrees + 5 {
		r, err := Host(t.Context(), HostOptions{Cache: cache, root: root, Hostname: strings.Repeat("x", i+1)})
		must(t, err)
		must(t, r.Close())
	}
	names := entries(t, cache)
	if len(names) > keepTrees+1 {
		t.Errorf("%d trees are kept, want at most %d", len(names), keepTrees+1)
	}
	if !slices.Contains(names, filepath.Base(held.Sandbox().Dir.Name())) {
		t.Error("a tree in use was removed")
	}
	if slices.Contains(names, tempPrefix+"dead") {
		t.Error("what a dead builder left is still there")
	}
	must(t, held.Close())
	_, err = build(t, root, HostOptions{Cache: cache, Hostname: "one-more"})
	must(t, err)
	if slices.Contains(entries(t, cache), filepath.Base(held.Sandbox().Dir.Name())) {
		t.Error("an unused old tree was kept")
	}
}

// TestPruneTakesDeadBuilders wants what a dead builder left to go with the next build,
// and nothing of one at work, not even before it holds what it builds in.
func TestPruneTakesDeadBuilders(t *testing.T) {
	c, err := openCache(filepath.Join(t.TempDir(), "cache"))
	must(t, err)
	dead := filepath.Join(c.dir, tempPrefix+"dead")
	must(t, os.MkdirAll(filepath.Join(dead, "etc"), 0o700))
	pruned := 0
	other := c
	c.onTemp = func() {
		if pruned++; pruned < 3 {
			other.prune("")
		}
	}
	f, err := c.tree(t.Context(), "0000", func(_ context.Context, at string) error {
		other.prune("")
		return os.WriteFile(filepath.Join(at, "file"), nil, 0o600)
	})
	must(t, err)
	defer f.Close()
	if _, err := os.Stat(filepath.Join(f.Name(), "file")); err != nil || pruned != 3 {
		t.Errorf("%d times, %v", pruned, err)
	}
	if left := entries(t, c.dir); !slices.Equal(left, []string{treePrefix + "0000"}) {
		t.Errorf("left: %v", left)
	}

	// No build may come for long: it goes when a tree is found, too.
	must(t, os.MkdirAll(filepath.Join(dead, "etc"), 0o700))
	again, err := c.tree(t.Context(), "0000", nil)
	must(t, err)
	defer again.Close()
	if left := entries(t, c.dir); !slices.Equal(left, []string{treePrefix + "0000"}) {
		t.Errorf("left where a tree was found: %v", left)
	}
}

// What is kept of steps is bounded by its size, too: those used longest ago go.
func TestStepsAreBounded(t *testing.T) {
	s, err := OpenStore(filepath.Join(t.TempDir(), "images"))
	must(t, err)
	kept := func() (out []string) {
		for _, key := range []string{"a", "b", "c"} {
			f, err := s.Step(key)
			must(t, err)
			if f != nil {
				f.Close()
				out = append(out, key)
			}
		}
		return out
	}
	for i, key := range []string{"a", "b", "c"} {
		f, err := s.KeepStep(t.Context(), key, func(f *os.File) error { return f.Truncate(keepStepBytes/2 - 1) })
		must(t, err)
		f.Close()
		at := time.Now().Add(time.Duration(i-3) * time.Minute)
		must(t, os.Chtimes(filepath.Join(s.dir, s.steps().prefix+key), at, at))
	}
	dead := filepath.Join(s.dir, tempPrefix+"dead")
	must(t, os.Mkdir(dead, 0o700))
	if have := kept(); !slices.Equal(have, []string{"a", "b", "c"}) { // the newest did not count when it was made
		t.Errorf("%v", have)
	}
	s.Sweep()
	if have := kept(); !slices.Equal(have, []string{"b", "c"}) {
		t.Errorf("%v", have)
	}
	if _, err := os.Stat(dead); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what a dead builder left: %v", err)
	}
	if n, err := s.PruneSteps(keepStepBytes / 2); n != 1 || err != nil || !slices.Equal(kept(), []string{"c"}) {
		t.Errorf("%d, %v, %v", n, err, kept())
	}
	if n, err := s.PruneSteps(0); n != 1 || err != nil || kept() != nil {
		t.Errorf("%d, %v, %v", n, err, kept())
	}
}

// TestFullDisk runs TestFullDiskInside in a mount namespace of its own.
func TestFullDisk(t *testing.T) {
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestFullDiskInside$", "-test.v")
	cmd.Env = append(os.Environ(), "CAISSON_IN_NAMESPACE=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: TestFullDiskInside") {
		t.Fatalf("%v\n%s", err, out)
	}
}

// TestFullDiskInside builds on a disk that is too small by bytes and by
// inodes: a sentence, and nothing left behind.
func TestFullDiskInside(t *testing.T) {
	if os.Getenv("CAISSON_IN_NAMESPACE") == "" {
		return // TestFullDisk calls it
	}
	root := fakeHost(t, append([]string{"etc/mime.types=" + strings.Repeat("x", 200_000)}, debian...)...)
	for _, size := range []string{"size=64k", "size=1m,nr_inodes=40"} {
		cache := t.TempDir()
		must(t, unix.Mount("none", cache, "tmpfs", 0, "mode=700,"+size))
		t.Cleanup(func() { unix.Unmount(cache, unix.MNT_DETACH) })
		_, err := build(t, root, HostOptions{Cache: cache})
		if !errors.Is(err, sandbox.ErrUnavailable) || !strings.Contains(sandbox.Hint(err), "full") {
			t.Errorf("%s: got %v (hint %q), want ErrUnavailable", size, err, sandbox.Hint(err))
		}
		if left := entries(t, cache); len(left) > 0 && size == "size=64k" {
			t.Errorf("%s: left behind: %v", size, left)
		}
		for _, e := range entries(t, cache) {
			if strings.HasPrefix(e, tempPrefix) {
				t.Errorf("%s: left behind: %s", size, e)
			}
		}
	}
}

func BenchmarkHost(b *testing.B) {
	o := HostOptions{Cache: filepath.Join(b.TempDir(), "cache"), Targets: []Target{{"/home/user", true}, {"/tmp", true}, {"/data", true}}}
	run := func(b *testing.B, o HostOptions) {
		r, err := Host(b.Context(), o)
		if err != nil {
			b.Fatal(err)
		}
		r.Close()
	}
	run(b, o)
	b.Run("warm", func(b *testing.B) {
		for b.Loop() {
			run(b, o)
		}
	})
	b.Run("new target", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			o := o
			o.Targets = []Target{{"/new" + strconv.Itoa(i), true}}
			run(b, o)
		}
	})
	b.Run("cold", func(b *testing.B) {
		for b.Loop() {
			os.RemoveAll(o.Cache)
			run(b, o)
		}
	})
}
