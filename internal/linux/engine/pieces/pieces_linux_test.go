// SPDX-License-Identifier: Apache-2.0

package pieces

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// This program is the process that reads, and one that starts it.
func TestMain(m *testing.M) {
	switch {
	case os.Args[0] == Argv0:
		Main()
	case os.Getenv("CAISSON_TEST_OWNER") != "":
		own(os.Getenv("CAISSON_TEST_OWNER"))
	}
	os.Exit(m.Run())
}

// own is who wants a file read, and lives until its standard input ends.
func own(name string) {
	program, err := os.Open("/proc/self/exe")
	if err != nil {
		panic(err)
	}
	file, err := os.Open(name)
	if err != nil {
		panic(err)
	}
	if err := Start(program, file); err != nil {
		panic(err)
	}
	fmt.Println("started")
	_, _ = io.Copy(io.Discard, os.Stdin)
	os.Exit(0)
}

// A file that lies in memory in small pieces lies there in large ones then, and is the
// same.
func TestRead(t *testing.T) {
	name, text := file(t)
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	if err := unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
		t.Fatal(err)
	}
	if err := unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_RANDOM); err != nil { // each page by itself
		t.Fatal(err)
	}
	if got, err := io.ReadAll(f); err != nil || !bytes.Equal(got, text) {
		t.Fatal(len(got), err)
	}
	if n := large(t, name); n != 0 {
		t.Skipf("it lies in large pieces already (%s): there is nothing to see", n)
	}
	again, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if err := Read(again); err != nil {
		t.Fatal(err)
	}
	if n := large(t, name); n == 0 && keepsLarge(t, name) {
		t.Error("it lies in small pieces")
	}
	if got, err := os.ReadFile(name); err != nil || !bytes.Equal(got, text) {
		t.Errorf("it is another one: %d bytes, %v", len(got), err)
	}
}

// What lies there in large pieces already is not dropped to be read once more.
func TestReadAgain(t *testing.T) {
	name, _ := file(t)
	if large(t, name) == 0 {
		t.Skip("this file system does not keep large pieces")
	}
	leaves(t, name)
}

// The same where the file is seen through another file system, as in a container.
func TestReadAgainOverlaid(t *testing.T) {
	name, _ := file(t)
	if large(t, name) == 0 || os.Geteuid() != 0 {
		t.Skip("this file system does not keep large pieces, or nothing can be mounted")
	}
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	err = f.Sync() // which cannot be done through the other one
	f.Close()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := unix.Mount("overlay", dir, "overlay", unix.MS_RDONLY, "lowerdir="+filepath.Dir(name)+":"+t.TempDir()); err != nil {
		t.Skip("no overlay here: ", err)
	}
	defer func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	}()
	leaves(t, filepath.Join(dir, filepath.Base(name)))
}

// leaves fails where a file is dropped that lies in large pieces.
func leaves(t *testing.T, name string) {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	dropped := false
	watch(t, func(b []byte, _, _ int) error {
		dropped = dropped || !resident(t, b)
		return nil
	})
	if err := Read(f); err != nil || dropped {
		t.Errorf("dropped: %v, %v", dropped, err)
	}
}

// What cannot be read in large pieces is not dropped: nobody would read it again.
func TestReadOnAnOldKernel(t *testing.T) {
	for name, refused := range map[string]int{"no huge pages": unix.MADV_HUGEPAGE, "before Linux 5.14": unix.MADV_POPULATE_READ} {
		t.Run(name, func(t *testing.T) {
			name, _ := file(t)
			f, err := os.Open(name)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			b, err := unix.Mmap(int(f.Fd()), 0, 8<<20, unix.PROT_READ, unix.MAP_PRIVATE)
			if err != nil {
				t.Fatal(err)
			}
			defer unix.Munmap(b)
			watch(t, func(_ []byte, _, advice int) error {
				if advice == refused {
					return unix.EINVAL
				}
				return nil
			})
			if Read(f) == nil {
				t.Error("it was read")
			}
			if !resident(t, b) {
				t.Error("it is in memory no more")
			}
		})
	}
}

// watch has f called before each madvise, which it may refuse.
func watch(t *testing.T, f func(b []byte, n, advice int) error) {
	was := madvise
	t.Cleanup(func() { madvise = was })
	madvise = func(b []byte, n, advice int) error {
		if err := f(b, n, advice); err != nil {
			return err
		}
		return was(b, n, advice)
	}
}

// resident reports whether all of a mapped file lies in memory.
func resident(t *testing.T, b []byte) bool {
	t.Helper()
	pages := make([]byte, (len(b)+os.Getpagesize()-1)/os.Getpagesize())
	if _, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), uintptr(unsafe.Pointer(&pages[0]))); errno != 0 {
		t.Fatal(errno)
	}
	return bytes.IndexByte(pages, 0) < 0
}

// What is no file of a program's size is left alone.
func TestReadNothing(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	huge := filepath.Join(t.TempDir(), "huge")
	if err := os.WriteFile(huge, nil, 0o600); err != nil || os.Truncate(huge, largest+1) != nil {
		t.Fatal(err)
	}
	for _, name := range []string{empty, huge, os.DevNull, t.TempDir()} {
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		if Read(f) == nil {
			t.Errorf("%s was read", name)
		}
		f.Close()
	}
}

// Nothing is read while its owner lives, who has the program mapped; then it is, and
// the process ends.
func TestStart(t *testing.T) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	defer unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
	name, _ := file(t)
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), "CAISSON_TEST_OWNER="+name)
	cmd.Stderr = os.Stderr
	lock, err := os.Create(filepath.Join(t.TempDir(), "lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	cmd.ExtraFiles = []*os.File{lock, lock, lock, lock} // 3 to 6
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(line, err)
	}
	pid := child(t, cmd.Process.Pid)
	for waits := false; !waits; {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil || strings.Contains(string(stat), ") Z ") {
			t.Fatalf("it did not wait: %s, %v", stat, err)
		}
		call, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/syscall", pid, pid))
		if err != nil {
			t.Skip("nobody tells what a process waits for here: ", err)
		}
		waits = threadWaits(t, pid, call)
	}
	for _, nice := range nices(t, pid) {
		if nice != "19" {
			t.Errorf("a thread has priority %s", nice)
		}
	}
	links, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil || len(links) == 0 {
		t.Fatal(links, err)
	}
	for _, link := range links {
		if got, err := os.Readlink(link); err != nil || got == lock.Name() {
			t.Errorf("it has %s open, which its owner was given: %v", got, err)
		}
	}
	in.Close()
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	var ws unix.WaitStatus
	if got, err := unix.Wait4(pid, &ws, 0, nil); err != nil || got != pid || !ws.Exited() || ws.ExitStatus() != 0 {
		t.Errorf("%d, %v, %v", got, ws, err)
	}
}

// threadWaits reports whether any thread of a process reads from its owner.
func threadWaits(t *testing.T, pid int, first []byte) bool {
	t.Helper()
	names, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/syscall", pid))
	if err != nil {
		t.Fatal(err)
	}
	calls := [][]byte{first}
	for _, name := range names {
		call, _ := os.ReadFile(name) // it may have ended
		calls = append(calls, call)
	}
	read := fmt.Sprintf("%d %#x ", unix.SYS_READ, ownerFD)
	poll := fmt.Sprintf("%d ", unix.SYS_EPOLL_PWAIT)
	for _, call := range calls {
		if s := string(call); strings.HasPrefix(s, read) || strings.HasPrefix(s, poll) {
			return true
		}
	}
	return false
}

// nices are the priorities of a process's threads.
func nices(t *testing.T, pid int) (all []string) {
	t.Helper()
	names, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil || len(names) == 0 {
		t.Fatal(names, err)
	}
	for _, name := range names {
		stat, err := os.ReadFile(name)
		if err != nil {
			continue // it has ended
		}
		_, rest, _ := strings.Cut(string(stat), ") ")
		all = append(all, strings.Fields(rest)[19-3]) // proc_pid_stat(5)
	}
	return all
}

// child is the only child of a process.
func child(t *testing.T, parent int) int {
	t.Helper()
	names, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", parent))
	if err != nil || len(names) == 0 {
		t.Fatal(names, err)
	}
	for _, name := range names {
		var pid int
		text, _ := os.ReadFile(name)
		if n, _ := fmt.Sscan(string(text), &pid); n == 1 {
			return pid
		}
	}
	t.Fatal("nothing was started")
	return 0
}

// file is one of 8 MiB, on a disk.
func file(t *testing.T) (name string, text []byte) {
	t.Helper()
	text = make([]byte, 8<<20)
	_, _ = rand.Read(text)
	name = filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return name, text
}

// kib is an amount of memory in KiB.
type kib int

func (n kib) String() string { return fmt.Sprintf("%d KiB", int(n)) }

// large is how much of a file is mapped by one entry for 2 MiB, where all is mapped.
func large(t *testing.T, name string) (n kib) {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b, err := unix.Mmap(int(f.Fd()), 0, 8<<20, unix.PROT_READ, unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(b)
	if err := unix.Madvise(b, unix.MADV_POPULATE_READ); err != nil {
		t.Fatal(err)
	}
	maps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	_, ours, ok := strings.Cut(string(maps), " "+name+"\n")
	if !ok {
		t.Fatal("its mapping is not found")
	}
	_, figure, _ := strings.Cut(ours, "FilePmdMapped:")
	_, _ = fmt.Sscan(figure, &n)
	return n
}

// keepsLarge reports whether a file that is written in pieces of 2 MiB is kept in them.
func keepsLarge(t *testing.T, name string) bool {
	t.Helper()
	other := name + "-other"
	text, err := os.ReadFile(name)
	if err != nil || os.WriteFile(other, text, 0o600) != nil {
		t.Fatal(err)
	}
	return large(t, other) != 0
}
