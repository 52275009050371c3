// SPDX-License-Identifier: Apache-2.0

// Package pieces has the kernel keep a program in memory in large pieces.
//
// What is read from the disk because somebody executes it lies in the page cache in
// pieces of a few pages, since nobody asked for more, and each of them is mapped by
// itself, in each process again. A file system that can keep large folios (XFS and
// Btrfs, ext4 since Linux 6.16) reads pieces of 2 MiB where a mapping is advised to have
// huge pages (do_sync_mmap_readahead in mm/filemap.c), and the kernel then maps each by
// one entry of its page table. What lies there already stays, though, while anybody has
// it mapped. So it is done by a process of another program, once the one that executes
// this program has ended.
package pieces

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Argv0 tells a program of ours that it was started to do that.
const Argv0 = "caisson-pieces"

// What such a process has open besides /dev/null.
const (
	fileFD    = 3 // what is to be read
	ownerFD   = 4 // which ends when the owner does
	programFD = 5 // what it executes
)

// largest is what a file may have, in bytes, so that nobody's memory is filled by it.
const largest = 512 << 20

// Start starts program, which calls [Main], to read file once this process has ended.
// It does not wait for it, and nothing is told of how it went.
func Start(program, file *os.File) error {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
		return err
	}
	theirs := os.NewFile(uintptr(ends[0]), "owner")
	defer theirs.Close()
	files := []*os.File{null, null, null, file, theirs, program}
	p, err := os.StartProcess("/proc/self/fd/5", []string{Argv0}, &os.ProcAttr{
		Dir: "/", Env: []string{"GOMAXPROCS=1"}, Files: files, Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		_ = unix.Close(ends[1])
		return err
	}
	return p.Release() // our end of the pipe is closed when this process ends
}

// Main is that process. It does not return.
func Main() {
	// A lock, or a pipe that somebody reads to its end: what its owner was started with
	// ends with its owner.
	if unix.CloseRange(programFD, math.MaxInt32, 0) != nil {
		os.Exit(1) // before Linux 5.9, which has no large pieces either
	}
	// All threads, which are all of the session's: another one may go on after a call.
	_ = unix.Setpriority(unix.PRIO_PGRP, 0, 19)
	owner, file := os.NewFile(ownerFD, "owner"), os.NewFile(fileFD, "program")
	_, _ = io.Copy(io.Discard, owner) // a process lets go of its memory before its files
	if Read(file) != nil {
		os.Exit(1)
	}
	os.Exit(0)
}

// Read reads a file anew, in large pieces, but for what somebody has mapped. What it
// cannot have in large pieces, or lies in them already, it leaves in memory as it is.
func Read(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if size := info.Size(); !info.Mode().IsRegular() || size == 0 || size > largest {
		return unix.EINVAL
	}
	b, unmap, err := mapped(f, int(info.Size()))
	if err != nil {
		return err
	}
	defer unmap()
	// These first: on a kernel without them what is dropped would not be read again.
	if err := errors.Join(madvise(b, len(b), unix.MADV_HUGEPAGE), madvise(b, 0, unix.MADV_POPULATE_READ)); err != nil {
		return err
	}
	if done(b) {
		return nil
	}
	_ = f.Sync() // what is not on the disk yet stays as it is
	if err := unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
		return err
	}
	return madvise(b, len(b), unix.MADV_POPULATE_READ) // no signal where the file has become shorter
}

// mapped maps a file at a multiple of what a large piece is. File systems that have
// these look for such a place themselves; one that lies over another (overlayfs) does
// not, and there it would not show which pieces the file lies in.
func mapped(f *os.File, size int) (b []byte, unmap func(), err error) {
	const piece = 2 << 20
	room, err := unix.Mmap(-1, 0, size+piece, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		return nil, nil, err
	}
	begin := -uintptr(unsafe.Pointer(&room[0])) % piece
	b = room[begin : int(begin)+size]
	if _, err := unix.MmapPtr(int(f.Fd()), 0, unsafe.Pointer(&b[0]), uintptr(size), unix.PROT_READ, unix.MAP_PRIVATE|unix.MAP_FIXED); err != nil {
		_ = unix.Munmap(room)
		return nil, nil, err
	}
	return b, func() { _ = unix.Munmap(room) }, nil
}

// madvise is madvise(2) for the first n bytes of b. For none it says whether the kernel
// knows the advice, MADV_POPULATE_READ since Linux 5.14. Tests have it refuse.
var madvise = func(b []byte, n, advice int) error {
	if _, _, errno := unix.Syscall(unix.SYS_MADVISE, uintptr(unsafe.Pointer(&b[0])), uintptr(n), uintptr(advice)); errno != 0 {
		return errno
	}
	return nil
}

// done says that nearly all of a mapped file lies in memory in large pieces: somebody
// else has seen to that, with another state directory. The file is not mapped afterwards.
func done(b []byte) bool {
	pages := make([]byte, (len(b)+os.Getpagesize()-1)/os.Getpagesize())
	_, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), uintptr(unsafe.Pointer(&pages[0])))
	if errno != 0 || bytes.IndexByte(pages, 0) >= 0 { // whose file it is not is told that all is there
		return false
	}
	defer madvise(b, len(b), unix.MADV_DONTNEED)
	return madvise(b, len(b), unix.MADV_POPULATE_READ) == nil && inLargePieces(b) >= len(b)-len(b)/8
}

// inLargePieces is how many bytes of a mapping are mapped by one entry for each 2 MiB.
func inLargePieces(b []byte) (n int) {
	smaps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		return 0
	}
	_, ours, _ := bytes.Cut(append([]byte{'\n'}, smaps...), fmt.Appendf(nil, "\n%08x-", uintptr(unsafe.Pointer(&b[0]))))
	_, figure, _ := bytes.Cut(ours, []byte("\nFilePmdMapped:"))
	_, _ = fmt.Sscan(string(figure), &n)
	return n << 10
}
