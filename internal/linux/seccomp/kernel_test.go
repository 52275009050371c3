// SPDX-License-Identifier: Apache-2.0

package seccomp

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// inside is the variable that makes the test binary install the filter and do
// what it says instead of running tests.
const inside = "CAISSON_TEST_INSIDE"

func TestMain(m *testing.M) {
	what, ok := os.LookupEnv(inside)
	if !ok {
		os.Exit(m.Run())
	}
	if err := install(); err != nil {
		fmt.Println(err)
		os.Exit(125)
	}
	switch what {
	case "calls":
		tryCalls()
	case "int80":
		int80()
	case "exec":
		fmt.Println(unix.Exec(os.Args[1], os.Args[1:], append(os.Environ(), inside+"=never")))
		os.Exit(126)
	}
	os.Exit(0)
}

// install puts the filter over all threads of this process.
func install() error {
	program, err := Untrusted(runtime.GOARCH)
	if err != nil {
		return err
	}
	runtime.LockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	f := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	_, _, errno := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&f)))
	if errno != 0 {
		return errno
	}
	return nil
}

// child runs this binary again in the filter.
func child(what string, args ...string) *exec.Cmd {
	exe, _ := os.Executable()
	cmd := exec.Command(exe, args...)
	cmd.Env = append(os.Environ(), inside+"="+what)
	return cmd
}

// attempt is a call with arguments that the filter alone refuses: without it
// the kernel would give another answer, which tells the two apart.
type attempt struct {
	name   string
	number uintptr
	args   [6]uintptr
	want   syscall.Errno
}

// attempts are what a root with every capability is refused.
func attempts() []attempt {
	path, _ := unix.BytePtrFromString("/nonexistent/file") // ENOENT without the filter
	p := uintptr(unsafe.Pointer(path))
	x32 := uintptr(0)
	if runtime.GOARCH == "amd64" {
		x32 = 0x40000000
	}
	a := []attempt{
		{"unshare nothing", unix.SYS_UNSHARE, [6]uintptr{0}, unix.EPERM},
		{"clone newuser", unix.SYS_CLONE, [6]uintptr{unix.CLONE_NEWUSER | unix.CLONE_FS}, unix.EPERM},    // EINVAL without
		{"clone parent", unix.SYS_CLONE, [6]uintptr{unix.CLONE_PARENT | unix.CLONE_SIGHAND}, unix.EPERM}, // EINVAL without
		{"clone3", unix.SYS_CLONE3, [6]uintptr{}, unix.ENOSYS},
		{"mount", unix.SYS_MOUNT, [6]uintptr{p, p, p}, unix.EPERM},
		{"umount", unix.SYS_UMOUNT2, [6]uintptr{p}, unix.EPERM},
		{"openat2", unix.SYS_OPENAT2, [6]uintptr{}, unix.ENOSYS},
		{"af_alg", unix.SYS_SOCKET, [6]uintptr{unix.AF_ALG, unix.SOCK_SEQPACKET}, unix.EAFNOSUPPORT},
		{"af_packet", unix.SYS_SOCKET, [6]uintptr{unix.AF_PACKET, unix.SOCK_RAW}, unix.EAFNOSUPPORT},
		{"raw", unix.SYS_SOCKET, [6]uintptr{unix.AF_INET, unix.SOCK_RAW, 1}, unix.EPERM},
		{"tiocsti", unix.SYS_IOCTL, [6]uintptr{^uintptr(0), 0x5412}, unix.EPERM}, // EBADF without
		{"tiocsti, high half", unix.SYS_IOCTL, [6]uintptr{^uintptr(0), 0x5412 | 1<<32}, unix.EPERM},
		{"set-user-id", unix.SYS_FCHMODAT, [6]uintptr{0, p, 0o4755}, unix.EPERM},
		{"set-user-id on open", unix.SYS_OPENAT, [6]uintptr{0, p, unix.O_CREAT, 0o4755}, unix.EPERM},
		{"device by whiteout", unix.SYS_RENAMEAT2, [6]uintptr{0, p, 0, p, unix.RENAME_WHITEOUT}, unix.EPERM},
		{"device", unix.SYS_MKNODAT, [6]uintptr{0, p, unix.S_IFBLK, 0}, unix.EPERM},
		{"io_uring", unix.SYS_IO_URING_SETUP, [6]uintptr{}, unix.EPERM},
		{"bpf", unix.SYS_BPF, [6]uintptr{99}, unix.EPERM},
		{"asynchronous I/O", unix.SYS_IO_SETUP, [6]uintptr{1, 0}, unix.ENOSYS},    // EFAULT without
		{"fanotify", unix.SYS_FANOTIFY_INIT, [6]uintptr{^uintptr(0)}, unix.EPERM}, // EINVAL without
		{"add a key", unix.SYS_ADD_KEY, [6]uintptr{}, unix.EPERM},                 // EFAULT without
		{"keyctl", unix.SYS_KEYCTL, [6]uintptr{99}, unix.EPERM},
		{"ptrace", unix.SYS_PTRACE, [6]uintptr{99}, unix.EPERM},
		{"personality", unix.SYS_PERSONALITY, [6]uintptr{0x0040000}, unix.EPERM},
		{"lease", unix.SYS_FCNTL, [6]uintptr{^uintptr(0), unix.F_SETLEASE, unix.F_RDLCK}, unix.EINVAL}, // EBADF without
		{"lease, high half", unix.SYS_FCNTL, [6]uintptr{^uintptr(0), unix.F_SETLEASE | 1<<32, unix.F_RDLCK}, unix.EINVAL},
		{"directory notice", unix.SYS_FCNTL, [6]uintptr{^uintptr(0), unix.F_NOTIFY, 0}, unix.EINVAL},
		{"delegation", unix.SYS_FCNTL, [6]uintptr{^uintptr(0), 1040, 0}, unix.EINVAL},
		{"write hint", unix.SYS_FCNTL, [6]uintptr{^uintptr(0), unix.F_SET_RW_HINT, 0}, unix.EINVAL},
		{"socket filter", unix.SYS_SETSOCKOPT, [6]uintptr{^uintptr(0), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER}, unix.ENOPROTOOPT}, // EBADF without
		{"socket filter, high half", unix.SYS_SETSOCKOPT, [6]uintptr{^uintptr(0), unix.SOL_SOCKET | 1<<32, unix.SO_ATTACH_FILTER | 1<<32}, unix.ENOPROTOOPT},
		{"socket program", unix.SYS_SETSOCKOPT, [6]uintptr{^uintptr(0), unix.SOL_SOCKET, unix.SO_ATTACH_BPF}, unix.ENOPROTOOPT},
		{"reuseport filter", unix.SYS_SETSOCKOPT, [6]uintptr{^uintptr(0), unix.SOL_SOCKET, unix.SO_ATTACH_REUSEPORT_CBPF}, unix.ENOPROTOOPT},
		{"reuseport program", unix.SYS_SETSOCKOPT, [6]uintptr{^uintptr(0), unix.SOL_SOCKET, unix.SO_ATTACH_REUSEPORT_EBPF}, unix.ENOPROTOOPT},
		{"lock a filter", unix.SYS_SETSOCKOPT, [6]uintptr{^uintptr(0), unix.SOL_SOCKET, unix.SO_LOCK_FILTER}, unix.ENOPROTOOPT},
		{"flow label", unix.SYS_SETSOCKOPT, [6]uintptr{^uintptr(0), unix.IPPROTO_IPV6, 32}, unix.ENOPROTOOPT},
		{"another module's protocol", unix.SYS_SETSOCKOPT, [6]uintptr{^uintptr(0), unix.IPPROTO_TCP, unix.TCP_ULP}, unix.ENOPROTOOPT},
		{"encapsulation", unix.SYS_SETSOCKOPT, [6]uintptr{^uintptr(0), unix.IPPROTO_UDP, unix.UDP_ENCAP}, unix.ENOPROTOOPT},
		{"encapsulation, as of UDP-Lite", unix.SYS_SETSOCKOPT, [6]uintptr{^uintptr(0), unix.IPPROTO_UDPLITE | 1<<32, unix.UDP_ENCAP}, unix.ENOPROTOOPT},
		{"filter of its own", unix.SYS_SECCOMP, [6]uintptr{unix.SECCOMP_SET_MODE_FILTER}, unix.EINVAL}, // EFAULT without
		{"filter of its own by prctl", unix.SYS_PRCTL, [6]uintptr{unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER}, unix.EINVAL},
		{"huge pages", unix.SYS_MMAP, [6]uintptr{0, 0, unix.PROT_READ, unix.MAP_PRIVATE | unix.MAP_ANONYMOUS | unix.MAP_HUGETLB}, unix.ENOMEM}, // EINVAL without: no length
		{"huge pages in a memfd", unix.SYS_MEMFD_CREATE, [6]uintptr{0, unix.MFD_HUGETLB}, unix.EPERM},                                          // EFAULT without
		{"huge pages in shared memory", unix.SYS_SHMGET, [6]uintptr{0, 0, shmHugeTLB}, unix.EPERM},                                             // EINVAL without: no size
		{"number beyond all", 1000, [6]uintptr{}, unix.ENOSYS},
		{"x32 getpid", x32 | unix.SYS_GETPID, [6]uintptr{}, unix.ENOSYS},
	}
	if x32 == 0 {
		a = a[:len(a)-1]
	}
	return a
}

func tryCalls() {
	for _, a := range attempts() {
		_, _, errno := unix.RawSyscall6(a.number, a.args[0], a.args[1], a.args[2], a.args[3], a.args[4], a.args[5])
		if errno != a.want {
			fmt.Printf("%s: %v, want %v\n", a.name, errno, a.want)
		}
	}
	if err := exec.Command("/bin/true").Run(); err != nil { // fork, exec and wait still work
		fmt.Println(err)
	}
}

// The kernel takes the filter and answers as the list says.
func TestKernel(t *testing.T) {
	out, err := child("calls").CombinedOutput()
	if err != nil || len(out) > 0 {
		t.Errorf("%v\n%s", err, out)
	}
}

// The same attempts without the filter get other answers, or this test would
// pass without it.
func TestAttemptsTell(t *testing.T) {
	for _, a := range attempts() {
		switch {
		case a.name == "number beyond all", a.name == "x32 getpid", a.name == "af_alg":
			continue // kernels may lack these
		case os.Geteuid() != 0 && a.want == unix.EPERM:
			continue // the kernel refuses much to an ordinary user by itself
		}
		_, _, errno := unix.RawSyscall6(a.number, a.args[0], a.args[1], a.args[2], a.args[3], a.args[4], a.args[5])
		if errno == a.want {
			t.Errorf("%s: %v without a filter, too", a.name, errno)
		}
	}
}

// int80 calls getpid by the 32-bit entry: mov eax, 20; int 0x80; ret. Go has no
// such instruction in a test, so it lies in a page of its own.
func int80() {
	page, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE|unix.PROT_EXEC, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		fmt.Println(err)
		return
	}
	copy(page, []byte{0xb8, 20, 0, 0, 0, 0xcd, 0x80, 0xc3})
	code := &page[0]
	closure := &code
	(*(*func())(unsafe.Pointer(&closure)))()
	fmt.Println("survived")
}

func TestInt80Kills(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("needs amd64: other processors have no int 0x80")
	}
	out, err := child("int80").CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != unix.SIGSYS {
		t.Errorf("%v\n%s", err, out)
	}
}

// Ordinary programs do their work: what is missing from the list shows here.
func TestPrograms(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("hello.c", "#include <stdio.h>\nint main(void) { puts(\"hello\"); return 0; }\n")
	write("hello.go", "package main\nfunc main() { println(\"hello\") }\n")
	write("go.mod", "module hello\n")
	write("work.py", `import asyncio, concurrent.futures, multiprocessing, os, socket, sqlite3, subprocess, tempfile, threading
if __name__ == "__main__":
    assert subprocess.run(["/bin/echo", "hello"], capture_output=True).stdout == b"hello\n"
    a, b = socket.socketpair(); a.send(b"x"); assert b.recv(1) == b"x"
    s = socket.socket(); s.bind(("127.0.0.1", 0)); s.listen()
    c = socket.create_connection(s.getsockname()); s.accept()
    socket.if_nameindex()
    with concurrent.futures.ThreadPoolExecutor(8) as pool: assert sum(pool.map(len, ["ab"] * 8)) == 16
    with multiprocessing.Pool(2) as pool: assert pool.map(len, ["ab", "c"]) == [2, 1]
    db = sqlite3.connect(os.path.join(tempfile.mkdtemp(), "db")); db.execute("create table t(x)"); db.commit()
    async def sub():
        p = await asyncio.create_subprocess_exec("/bin/true"); await p.wait()
    asyncio.run(sub())
    print("done")
`)
	write("work.mjs", `import {spawnSync} from "node:child_process"; import {Worker, isMainThread} from "node:worker_threads"; import fs from "node:fs"; import net from "node:net";
if (isMainThread) {
  if (spawnSync("/bin/echo", ["hello"]).stdout.toString() !== "hello\n") process.exit(1);
  fs.writeFileSync("node.txt", "x"); await fs.promises.readFile("node.txt");
  await new Promise(ok => net.createServer(c => c.end()).listen(0, "127.0.0.1", function () { net.connect(this.address().port).on("close", () => { this.close(); ok(); }).resume(); }));
  await new Promise((ok, no) => new Worker(new URL(import.meta.url)).on("exit", ok).on("error", no));
  console.log("done");
}
`)
	write("Work.java", "public class Work { public static void main(String[] a) throws Exception { var t = new Thread(() -> System.gc()); t.start(); t.join(); System.out.println(\"done\"); } }\n")
	for _, argv := range [][]string{
		{"bash", "-c", "set -e; for i in 1 2 3; do (echo $i) & done; wait; cat <(echo x) | tr x y; mkfifo fifo; umask 022; ls -la >/dev/null; tar cf t.tar hello.c; tar xOf t.tar >/dev/null; cp -a hello.c copy.c; touch -d yesterday copy.c; rm copy.c"},
		{"gcc", "-O1", "-o", "hello", "hello.c"},
		{"git", "-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main", "-c", "alias.all=!git init -q r && cd r && echo x > f && git add f && git commit -qm x && git clone -q . ../r2 && git gc -q && git status", "all"},
		{"go", "build", "-o", "hello-go", "hello.go"},
		{"python3", "work.py"},
		{"node", "work.mjs"},
		{"java", "Work.java"},
		{"perl", "-e", "fork() or exit; wait; print qq(done\\n)"},
		{"make", "-f", "/dev/null", "-q", "hello.c"},
	} {
		t.Run(argv[0], func(t *testing.T) {
			program, err := exec.LookPath(argv[0])
			if err != nil {
				t.Skip(err)
			}
			cmd := child("exec", append([]string{program}, argv[1:]...)...)
			cmd.Dir = dir
			cmd.Env = append(cmd.Env, "HOME="+dir, "CGO_ENABLED=0", "GOFLAGS=-mod=mod", "GOTOOLCHAIN=local")
			var out bytes.Buffer
			cmd.Stdout, cmd.Stderr = io.Writer(&out), &out
			if err := cmd.Run(); err != nil {
				t.Errorf("%s: %v\n%s", strings.Join(argv, " "), err, &out)
			}
		})
	}
}
