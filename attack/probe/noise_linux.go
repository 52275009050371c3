// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"runtime"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

// What a sandbox does that others should not feel, and one that would.

// MaxWear bounds what wear leaves on a disk that is not slowed down.
const MaxWear = 256 << 20

// wear writes a file, piece by piece, each of which is on the disk before the next.
func wear(name string) int {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		end("wear", 0, err)
		return 0
	}
	defer f.Close()
	say(Try{Case: CaseReady, What: "wear"})
	told := make(chan struct{})
	go func() {
		_, _ = os.Stdin.Read(make([]byte, 1))
		close(told)
	}()
	piece := bytes.Repeat([]byte("caisson."), 32<<10)
	for n := 0; n < MaxWear; n += len(piece) {
		select {
		case <-told:
			return 0
		default:
		}
		if _, err = f.Write(piece); err == nil {
			err = unix.Fdatasync(int(f.Fd()))
		}
		if err != nil {
			say(Try{Case: "wear", What: strconv.Itoa(n), Error: err.Error()})
			break
		}
	}
	<-told
	return 0
}

// noise spins in n processes, each in a session of its own: the kernel shares
// processors by session where no control group does (sched(7), autogroup).
func noise(n int64) int {
	runtime.LockOSThread()
	var gate [2]int // they wait at it, so that the last ones need not be made beside the first
	if err := unix.Pipe2(gate[:], unix.O_CLOEXEC); err != nil {
		end("noise", 0, err)
		return 0
	}
	t := Try{Case: CaseReady, What: "noise"}
	var children []int
	for ; t.Count < n; t.Count++ {
		pid, errno := forkSpinning(gate)
		if errno != 0 {
			t.Error = errno.Error()
			break
		}
		children = append(children, pid)
	}
	say(t)
	_ = unix.Close(gate[1])
	_, _ = io.Copy(io.Discard, os.Stdin)
	for _, pid := range children {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
	return 0
}

// forkSpinning is fork, and the child spins as soon as the gate has no writer.
//
//go:norace
func forkSpinning(gate [2]int) (int, unix.Errno) {
	var b [1]byte
	pid, _, errno := unix.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
	if errno == 0 && pid == 0 {
		unix.RawSyscall(unix.SYS_PRCTL, unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0)
		unix.RawSyscall(unix.SYS_SETSID, 0, 0, 0)
		unix.RawSyscall(unix.SYS_CLOSE, uintptr(gate[1]), 0, 0)
		unix.RawSyscall(unix.SYS_READ, uintptr(gate[0]), uintptr(unsafe.Pointer(&b)), 1)
		for x := uint64(1); x != 0; x |= x << 1 {
		}
	}
	return int(pid), errno
}

// CaseStep is one answer of a quiet neighbour.
const CaseStep = "step"

// quiet does a little work whenever it is asked, line by line, and says so.
func quiet() int {
	say(Try{Case: CaseReady, What: "quiet"})
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		x := uint64(88172645463325252)
		for range 4_000_000 { // some milliseconds
			x ^= x << 13
			x ^= x >> 7
			x ^= x << 17
		}
		say(Try{Case: CaseStep, Count: int64(x & 1)})
	}
	return 0
}
