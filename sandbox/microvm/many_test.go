// SPDX-License-Identifier: Apache-2.0

//go:build linux

package microvm_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/caisson-run/caisson/guest"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/drivertest"
	"github.com/caisson-run/caisson/sandbox/microvm"
)

// TestManyMachines: fifty machines of 128 MiB, of which eight run at any time, leave no
// process, mount, control group, file, descriptor or goroutine behind.
func TestManyMachines(t *testing.T) {
	if testing.Short() {
		t.Skip("it boots fifty machines: make test-vm")
	}
	const machines, together = 50, 8
	temp := t.TempDir()
	if err := os.Chmod(temp, 0o755); err != nil {
		t.Fatal(err)
	}
	d := newDriver(t, microvm.Micro)
	like := newSpec(t, func(s *sandbox.Spec) { s.Limits.Memory = 128 << 20 })
	t.Setenv("TMPDIR", temp) // what is made in it by now is a driver's
	run, tag := filepath.Dir(like.StateDir), rand.Text()[:10]
	left := func() []string {
		return slices.Concat(drivertest.Left(t, tag, run), filesBelow(t, run), filesBelow(t, temp))
	}
	one := func(n int) error { return oneOfMany(t, d, like, run, tag, n) }
	if err := one(0); err != nil { // it makes what all share
		t.Fatal(err)
	}
	before, open := left(), descriptors(t)
	goroutines := goleak.IgnoreCurrent()

	numbers := make(chan int)
	var wait sync.WaitGroup
	for range together {
		wait.Go(func() {
			for n := range numbers {
				if err := one(n); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for n := range machines {
		numbers <- n + 1
	}
	close(numbers)
	wait.Wait()

	for _, what := range left() {
		if !slices.Contains(before, what) {
			t.Errorf("left behind: %s", what)
		}
	}
	if now := descriptors(t); now > open+4 { // a few may be the runtime's own
		t.Errorf("%d descriptors were open, and %d are after %d machines", open, now, machines)
	}
	if err := goleak.Find(goroutines); err != nil {
		t.Error(err)
	}
}

// oneOfMany boots a machine, runs a program in it, ends it, and removes its state as its
// owner does.
func oneOfMany(t *testing.T, d sandbox.Driver, like *sandbox.Spec, run, tag string, n int) (err error) {
	s := *like
	s.ID, s.StateDir = "sbx_"+tag+rand.Text(), filepath.Join(run, fmt.Sprint("many-", n))
	if err := os.Mkdir(s.StateDir, 0o700); err != nil {
		return err
	}
	i, err := d.Start(t.Context(), &s)
	if err != nil {
		return fmt.Errorf("machine %d: %w", n, err)
	}
	defer func() {
		for _, undone := range []error{i.Destroy(context.WithoutCancel(t.Context())), os.RemoveAll(s.StateDir)} {
			if err == nil && undone != nil {
				err = fmt.Errorf("machine %d: %w", n, undone)
			}
		}
	}()
	conn, err := i.Dial(t.Context())
	if err != nil {
		return fmt.Errorf("machine %d: %w", n, err)
	}
	c, err := guest.NewClient(conn, guest.Options{Limits: s.Limits, User: s.User})
	if err != nil {
		return fmt.Errorf("machine %d: %w", n, err)
	}
	defer c.Close()
	var out strings.Builder
	x := &sandbox.Exec{Argv: []string{"sh", "-c", fmt.Sprintf("echo %d > /home/user/n && cat /home/user/n", n)}, Dir: "/", Env: []string{"PATH=/usr/bin:/bin"}, Stdout: &out, Stderr: &out}
	if _, err := c.Run(t.Context(), x); err != nil || out.String() != fmt.Sprintln(n) {
		return fmt.Errorf("machine %d says %q: %v", n, out.String(), err)
	}
	return nil
}

func filesBelow(t *testing.T, dir string) (names []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(name string, _ fs.DirEntry, err error) error {
		names = append(names, name)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// descriptors is how many are open.
func descriptors(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}
