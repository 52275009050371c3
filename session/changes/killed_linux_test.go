// SPDX-License-Identifier: Apache-2.0

package changes

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// applyEnv makes the test's program apply a set: its store, ID and digest.
const applyEnv = "CAISSON_TEST_APPLY"

func TestMain(m *testing.M) {
	if order := os.Getenv(applyEnv); order != "" {
		parts := strings.Split(order, "\n")
		s, err := Open(parts[0], Options{})
		if err == nil {
			_, err = s.Apply(context.Background(), parts[1], ApplyOptions{Digest: parts[2]})
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// A killed Apply leaves each file as it was or as it is to be, and the next one goes on.
func TestKilled(t *testing.T) {
	kills := 100
	if testing.Short() {
		kills = 12
	}
	var half atomic.Int32
	t.Run("all", func(t *testing.T) {
		for i := range 4 { // they wait for the disk
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				for range kills / 4 {
					if killedOnce(t) {
						half.Add(1)
					}
				}
			})
		}
	})
	if half.Load() == 0 {
		t.Error("no Apply was killed half way")
	}
	t.Logf("%d of %d were killed half way", half.Load(), kills)
}

// killedOnce kills an Apply, looks at what it left, and goes on with it.
func killedOnce(t *testing.T) (half bool) {
	host, inside := manyFiles()
	ws := newWorkspace(t, host)
	set := ws.keep(layerOf(host, inside, func() bool { return true }))
	half = ws.killApply(set, 1+rand.IntN(100))
	got := readTree(t, ws.dir)
	for at, o := range got {
		if o != host[at] && o != inside[at] && !strings.HasPrefix(filepath.Base(at), tempPrefix) {
			t.Errorf("%s is %+v, which is neither the old nor the new one", at, o)
		}
	}
	for at := range host {
		_, is := got[at]
		if _, stays := inside[at]; stays && !is {
			t.Errorf("%s is gone: neither the old nor the new one is there", at)
		}
	}
	a, err := ws.apply(set, ApplyOptions{})
	if err != nil || len(a.Conflicts) > 0 {
		t.Fatalf("it does not go on: %v", err)
	}
	if diff := cmp.Diff(inside, readTree(t, ws.dir), cmp.AllowUnexported(object{})); diff != "" {
		t.Fatalf("-inside +host\n%s", diff)
	}
	if set, err = ws.store.Get("", set.ID); err != nil || set.State.Unfinished || set.State.Applied != len(set.Entries) {
		t.Fatalf("%+v, %v", set.State, err)
	}
	if err := os.RemoveAll(filepath.Dir(ws.dir)); err != nil {
		t.Fatal(err)
	}
	return half
}

// manyFiles is a workspace of 200 files that are changed, removed, made, and changed in type.
func manyFiles() (host, inside tree) {
	host, inside = tree{}, tree{}
	for i := range 200 {
		at := fmt.Sprintf("d%d/f%d", i%10, i)
		long := strings.Repeat("x", i*100)
		if i%4 != 0 {
			host.put(at, object{File, "old" + long, false})
		}
		switch {
		case i%4 == 1 && i%3 == 0:
			inside.put(at, object{kind: Link, text: fmt.Sprintf("f%d-missing", i)})
		case i%4 == 2 && i%3 == 0:
			inside.put(fmt.Sprintf("d%d/keep", i%10), object{File, "k", false})
		default:
			inside.put(at, object{File, "new" + long, false})
		}
	}
	for i := range 10 {
		host.put(fmt.Sprintf("t%d/was/deep", i), object{File, "old", false})
		inside.put(fmt.Sprintf("t%d", i), object{File, "new", false})
		host.put(fmt.Sprintf("u%d", i), object{File, "old", false})
		inside.put(fmt.Sprintf("u%d/is/deep", i), object{File, "new", false})
	}
	return host, inside
}

// killApply kills a process that applies a set, at a write to its journal, and says
// whether the set is half applied.
func (ws *workspace) killApply(set *Set, write int) bool {
	ws.Helper()
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		ws.Fatal(err)
	}
	events := os.NewFile(uintptr(fd), "inotify") // one that does not block until it is closed
	defer events.Close()
	if _, err := unix.InotifyAddWatch(fd, ws.store.path(set.ID), unix.IN_MODIFY); err != nil {
		ws.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		ws.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), applyEnv+"="+strings.Join([]string{ws.store.dir, set.ID, set.Digest}, "\n"))
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		ws.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait()
		events.Close()
	}()
	buf := make([]byte, unix.SizeofInotifyEvent+unix.NAME_MAX+1)
	for seen := 0; seen < write; seen++ {
		if _, err := events.Read(buf); err != nil {
			break // it has ended
		}
	}
	_ = cmd.Process.Kill()
	<-ended
	list, err := ws.store.List("")
	if err != nil || len(list) != 1 {
		ws.Fatalf("%v, %v", list, err)
	}
	return list[0].State.Unfinished
}
