// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// What follows goes up to a bound that no limit in force lets it reach, and that
// does no harm where there is none.

// processes makes n processes that do nothing.
func processes(n int64) int {
	runtime.LockOSThread()
	var made int64
	var why error
	var children []int
	for made < n {
		pid, errno := fork()
		if errno != 0 {
			why = errno
			break
		}
		children = append(children, pid)
		made++
	}
	end("processes", made, why)
	for _, pid := range children {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
	return 0
}

// fork makes a process that pauses until it is killed. It makes no call but raw
// ones: the child has one thread of a program that has many.
//
//go:norace
func fork() (int, unix.Errno) {
	pid, _, errno := unix.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
	if errno == 0 && pid == 0 {
		unix.RawSyscall(unix.SYS_PRCTL, unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0)
		for {
			unix.RawSyscall6(unix.SYS_PPOLL, 0, 0, 0, 0, 0, 0)
		}
	}
	return int(pid), errno
}

// end says how much there was to be had, waits until the host has looked, or for
// a second without a look.
func end(what string, count int64, why error) {
	t := Try{Case: CaseReady, What: what, Count: count}
	if why != nil {
		t.Error = why.Error()
	}
	say(t)
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// step is how much is taken at a time; each is said before the next, because
// the one that is too much says nothing.
const step = 16 << 20

// memory takes n bytes of a kind.
func memory(kind string, n int64) int {
	var total int64
	var hold []any
	for total < n {
		err := error(nil)
		switch kind {
		case "anonymous":
			var m []byte
			if m, err = unix.Mmap(-1, 0, step, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON); err == nil {
				touch(m)
				hold = append(hold, m)
			}
		case "memfd":
			var fd int
			if fd, err = unix.MemfdCreate("caisson-attack", unix.MFD_CLOEXEC); err == nil {
				f := os.NewFile(uintptr(fd), "memfd")
				err = fill(f, step)
				hold = append(hold, f)
			}
		case "shm":
			var f *os.File
			if f, err = os.Create(fmt.Sprintf("/dev/shm/caisson-%d", total)); err == nil {
				err = fill(f, step)
				hold = append(hold, f)
			}
		case "sockets":
			err = sockets(&hold)
		case "datagrams":
			err = datagrams(&hold)
		}
		if err != nil {
			end(kind, total, err)
			return 0
		}
		total += step
		say(Try{Case: "memory", What: kind, Count: total})
	}
	end(kind, total, nil)
	runtime.KeepAlive(hold)
	return 0
}

// touch writes what no other page holds, so that nothing is shared or packed.
func touch(m []byte) {
	for i := 0; i < len(m); i += 4096 {
		m[i], m[i+1], m[i+2], m[i+3] = byte(i>>12), byte(i>>20), byte(len(m)), 1
	}
}

func fill(f *os.File, n int) error {
	block := bytes.Repeat([]byte("caisson."), 128<<10) // 1 MiB
	for n > 0 {
		m, err := f.Write(block[:min(n, len(block))])
		if err != nil {
			return err
		}
		n -= m
	}
	return nil
}

// sockets fills a step of socket buffers.
func sockets(hold *[]any) error {
	block := make([]byte, 64<<10)
	for full := 0; full < step; {
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		*hold = append(*hold, pair)
		_ = unix.SetsockoptInt(pair[0], unix.SOL_SOCKET, unix.SO_SNDBUF, 8<<20)
		for {
			n, err := unix.Write(pair[0], block)
			if err != nil {
				break
			}
			full += n
		}
	}
	return nil
}

// datagrams fills a step of the buffers of internet sockets, which some control
// groups count apart from other memory or not at all. What was not taken in is
// dropped without a word, so the kernel is asked what lies there.
func datagrams(hold *[]any) error {
	block := make([]byte, 60<<10)
	for full := 0; full < step; {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		*hold = append(*hold, fd)
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 8<<20)
		if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
			return err
		}
		self, err := unix.Getsockname(fd)
		if err != nil {
			return err
		}
		for range 16 {
			_ = unix.Sendto(fd, block, 0, self)
		}
		held, err := received(fd)
		if err != nil {
			return err
		}
		if held < len(block) {
			return errors.New("the kernel takes in no more")
		}
		full += held
	}
	return nil
}

// received is how much memory a socket's input takes (SK_MEMINFO_RMEM_ALLOC,
// linux/sock_diag.h).
func received(fd int) (int, error) {
	var info [9]uint32
	size := uint32(unsafe.Sizeof(info))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_MEMINFO,
		uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return 0, errno
	}
	return int(info[0]), nil
}

// disk writes up to n bytes and then makes up to files empty files in each
// directory, and says what it got of both.
func disk(n, files int64, dirs []string) int {
	for _, dir := range dirs {
		var got int64
		f, err := os.Create(filepath.Join(dir, "caisson-big"))
		for err == nil && got < n {
			if err = fill(f, 1<<20); err == nil {
				got += 1 << 20
			}
		}
		report("bytes "+dir, got, err)
		if f != nil {
			// A hole takes nothing until it is written to.
			err = f.Truncate(0)
			for at := int64(0); err == nil && at < n; at += 2 << 20 {
				if _, err = f.WriteAt(make([]byte, 1<<20), at+1<<20); err == nil {
					got = at/2 + 1<<20
				}
			}
			report("bytes in a sparse file "+dir, got, err)
			f.Close()
			os.Remove(f.Name())
		}
		var made int64
		for err = nil; err == nil && made < files; {
			var e *os.File
			if e, err = os.Create(filepath.Join(dir, "f"+strconv.FormatInt(made, 10))); err == nil {
				e.Close()
				made++
			}
		}
		report("files "+dir, made, err)
	}
	end("disk", 0, nil)
	return 0
}

func report(what string, n int64, err error) {
	t := Try{Case: "disk", What: what, Count: n}
	if err != nil {
		t.Error = err.Error()
	}
	say(t)
}

// output writes n bytes: lines, one endless line, bytes that are no text, and
// words for a terminal.
func output(n int64) int {
	block := bytes.Repeat([]byte("\x1b]52;c;Y2Fpc3Nvbg==\x07\x1b]0;title\x07\xff\xfe\x00 endless "), 1024)
	for n > 0 {
		m, err := os.Stdout.Write(block)
		if err != nil {
			return 1
		}
		n -= int64(m)
	}
	return 0
}

// files opens n descriptors.
func files(n int64) int {
	var got int64
	var why error
	for got < n {
		if _, err := unix.Open("/", unix.O_PATH, 0); err != nil {
			why = err
			break
		}
		got++
	}
	end("descriptors", got, why)
	return 0
}

// stubborn ignores every signal that can be ignored and is busy, or stops itself.
func stubborn(stop bool) int {
	signal.Ignore()
	say(Try{Case: CaseReady})
	if stop {
		_ = unix.Kill(os.Getpid(), unix.SIGSTOP)
	}
	for {
		runtime.Gosched()
	}
}

// daemon leaves a process behind, in a session of its own.
func daemon(nonce string) int {
	cmd := exec.Command(os.Args[0], Word, ModeSleep, nonce)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err := cmd.Start()
	end("daemon", 1, err)
	return 0
}

// victim is a process of the host: it holds a canary in its memory, which is the
// first line of its input, and another in descriptor 3, and says when a signal
// comes.
func victim() int {
	memory := make([]byte, 128)
	if _, err := os.Stdin.Read(memory); err != nil {
		return 125
	}
	got := make(chan os.Signal, 1)
	signal.Notify(got, unix.SIGUSR1)
	fmt.Printf("%d\n", pointer(memory))
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		runtime.KeepAlive(memory)
		os.Exit(0)
	}()
	for range got {
		fmt.Println("signalled")
	}
	return 0
}

// agent goes at the first process of the sandbox, which speaks with the host.
func agent() int {
	p := &prober{id: "K18"}
	p.open("/proc/1/mem", unix.O_RDWR)
	p.open("/proc/1/fd/0", unix.O_RDWR)
	_, _, errno := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_SEIZE, 1, 0, 0, 0, 0)
	p.hold0("ptrace the first process", errno)
	p.try("stop the first process", stop(1))
	p.try("kill the first process", kill(1))
	// It comes out of the sandbox by the agent, if that still answers.
	_ = os.Mkdir("out", 0o755)
	_ = os.WriteFile("out/plain", []byte("collected"), 0o644)
	return 0
}

// stop stops a process. Where nothing refuses the call (Linux before 6.12, and the
// same uid), the kernel may drop the signal all the same: the first process of a PID
// namespace takes none from inside (pid_namespaces(7)). So its state is asked, for
// as long as a signal may take that is on its way.
func stop(pid int) error {
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		return err
	}
	for range 20 {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			return err
		}
		if regexp.MustCompile(`(?m)^State:\s+[Tt]`).Match(b) {
			return nil
		}
		time.Sleep(5 * time.Millisecond)
	}
	return errors.New("the kernel dropped the signal")
}

// kill kills a process, whose end this one would not outlive. It may be that nothing
// refuses the call, and the kernel drops the signal all the same (stop).
func kill(pid int) error {
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		return err
	}
	time.Sleep(100 * time.Millisecond)
	return errors.New("the kernel dropped the signal")
}

// links leaves links to be collected, and goes on changing them while the host
// does that.
func links(target string) int {
	_ = os.Mkdir("out", 0o755)
	_ = os.Symlink(target, "out/link")
	_ = os.Symlink(filepath.Dir(target), "out/dir")
	_ = os.WriteFile("out/plain", []byte("collected"), 0o644)
	cmd := exec.Command(os.Args[0], Word, modeSwap, target)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	_ = cmd.Start()
	return 0
}

// placed leaves something to be collected, and links where the host will write
// it: one in the place of the directory, others in the place of files.
func placed(target string) int {
	_ = os.MkdirAll("out", 0o777)
	_ = os.WriteFile("out/F20", []byte("collected"), 0o644)
	_ = os.RemoveAll("collected")
	_ = os.Symlink(target, "collected")
	_ = os.MkdirAll("kept", 0o777)
	_ = os.Remove("kept/F20")
	_ = os.Symlink(target+"/F20", "kept/F20")
	end("placed", 1, nil)
	return 0
}

// swap makes names files and links by turns (CVE-2026-44112), until it is ended.
func swap(target string) int {
	for i := 0; ; i++ {
		name := "out/swapped" + strconv.Itoa(i%8)
		_ = os.WriteFile("out/.file", []byte("plain"), 0o644)
		_ = os.Rename("out/.file", name)
		_ = os.Symlink(target, "out/.link")
		_ = os.Rename("out/.link", name)
	}
}
