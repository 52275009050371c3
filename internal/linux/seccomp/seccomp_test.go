// SPDX-License-Identifier: Apache-2.0

package seccomp

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

var update = flag.Bool("update", false, "write testdata")

// entries are the ways to make a system call, and the filter that stands there.
var entries = []struct {
	name   string
	goarch string // the filter's
	arch   uint32
	bit    uint32 // in every number
	same   bool   // one answer for all of them
}{
	{"amd64", "amd64", unix.AUDIT_ARCH_X86_64, 0, false},
	{"arm64", "arm64", unix.AUDIT_ARCH_AARCH64, 0, false},
	{"i386 (int 0x80) under amd64", "amd64", unix.AUDIT_ARCH_I386, 0, true},
	{"x32 under amd64", "amd64", unix.AUDIT_ARCH_X86_64, 0x40000000, true},
	{"arm under arm64", "arm64", unix.AUDIT_ARCH_ARM, 0, true},
}

const beyond = 1024 // the kernel's numbers end far below

// What testdata/untrusted holds is the list as it was last agreed on: each
// change to it shows in a review. The answers are the program's, not those of
// the tables that it is made from.
func TestUntrusted(t *testing.T) {
	var got strings.Builder
	for _, d := range entries {
		l, err := untrusted(d.goarch)
		if err != nil {
			t.Fatal(err)
		}
		program, err := Untrusted(d.goarch)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&got, "# %s\n", d.name)
		names := byNumber(d.goarch)
		all := map[string]bool{}
		for n := range uint32(beyond) {
			v := l.calls[n]
			for _, args := range tries(v) {
				answer, err := run(program, d.arch, n|d.bit, args)
				if err != nil {
					t.Fatalf("%s %d: %v", d.name, n, err)
				}
				if want := l.judge(d.arch, n|d.bit, args); answer != want {
					t.Errorf("%s %d %x: the program says %s, the list %s", d.name, n, args, word(answer), word(want))
				}
				all[word(answer)] = true
				if name, ok := names[n]; ok && !d.same && v.test == nil {
					fmt.Fprintf(&got, "%-24s %s\n", name, word(answer))
				}
			}
			if v.test != nil && !d.same {
				fmt.Fprintf(&got, "%-24s %s\n", names[n], expression(v))
			}
		}
		for _, n := range []uint32{beyond, 1<<30 - 1, 1 << 30, 1 << 31, 1<<32 - 1} {
			if answer, err := run(program, d.arch, n|d.bit, [6]uint64{}); err != nil || answer == unix.SECCOMP_RET_ALLOW {
				t.Errorf("%s %#x: %s, %v", d.name, n, word(answer), err)
			}
		}
		if d.same {
			if len(all) != 1 {
				t.Errorf("%s: %v", d.name, all)
			}
			for answer := range all {
				fmt.Fprintf(&got, "%-24s %s\n", "(all)", answer)
			}
		} else {
			answer, _ := run(program, d.arch, beyond, [6]uint64{})
			fmt.Fprintf(&got, "%-24s %s\n", "(others)", word(answer))
		}
	}
	const golden = "testdata/untrusted"
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(golden, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got.String()); diff != "" {
		t.Errorf("the list has changed; if that is meant, run go test ./internal/linux/seccomp -update\n%s", diff)
	}
}

// tries are arguments that reach every branch of v, each with and without
// something in the upper half, which the kernel does not look at.
func tries(v verdict) [][6]uint64 {
	all := [][6]uint64{{}}
	var walk func(v verdict, base [6]uint64)
	walk = func(v verdict, base [6]uint64) {
		if v.test == nil {
			return
		}
		values := []uint32{0, 1, 0xffffffff, v.test.mask, ^v.test.mask}
		for bit := range 32 {
			values = append(values, 1<<bit)
		}
		for _, value := range v.test.values {
			values = append(values, value, value|^v.test.mask, value+1)
		}
		for _, value := range values {
			args := base
			args[v.test.arg] = uint64(value)
			all = append(all, args)
			if v.test.holds(value) {
				walk(v.test.then, args)
			} else if value == 0 || value == 0xffffffff || value == v.test.mask {
				walk(v.test.not, args)
			}
			args[v.test.arg] |= 0xdeadbeef << 32
			all = append(all, args)
		}
	}
	walk(v, [6]uint64{})
	return all
}

// The exploits that were: an answer that lets one of these through is wrong,
// whatever testdata says.
func TestKnownTricks(t *testing.T) {
	program, err := Untrusted("amd64")
	if err != nil {
		t.Fatal(err)
	}
	numbers := map[string]uint32{}
	for _, c := range calls {
		numbers[c.name] = uint32(c.amd64)
	}
	const high = 1 << 32
	for _, c := range []struct {
		name string
		args [6]uint64
		want uint32
	}{
		{"ioctl", [6]uint64{0, 0x5412}, refused(unix.EPERM)},
		{"ioctl", [6]uint64{0, 0x5412 | high}, refused(unix.EPERM)}, // CVE-2019-10063: flatpak compared 64 bits
		{"ioctl", [6]uint64{0, unix.TCGETS}, allow.action},
		{"clone", [6]uint64{unix.CLONE_NEWUSER | uint64(unix.SIGCHLD)}, refused(unix.EPERM)},
		{"clone", [6]uint64{uint64(unix.SIGCHLD)}, allow.action},
		{"clone", [6]uint64{unix.CLONE_VM | unix.CLONE_THREAD | unix.CLONE_SIGHAND | unix.CLONE_SETTLS}, allow.action},
		{"clone", [6]uint64{unix.CLONE_PARENT | uint64(unix.SIGCHLD)}, refused(unix.EPERM)},
		{"clone", [6]uint64{high | unix.CLONE_PARENT | uint64(unix.SIGCHLD)}, refused(unix.EPERM)},
		{"clone3", [6]uint64{}, refused(unix.ENOSYS)},
		{"socket", [6]uint64{unix.AF_ALG, unix.SOCK_SEQPACKET}, refused(unix.EAFNOSUPPORT)}, // CVE-2026-31431
		{"socket", [6]uint64{unix.AF_ALG | high, unix.SOCK_SEQPACKET}, refused(unix.EAFNOSUPPORT)},
		{"socket", [6]uint64{unix.AF_VSOCK, unix.SOCK_STREAM}, refused(unix.EAFNOSUPPORT)},
		{"socket", [6]uint64{unix.AF_PACKET, unix.SOCK_RAW, 0x300}, refused(unix.EAFNOSUPPORT)},
		{"socket", [6]uint64{unix.AF_INET, unix.SOCK_RAW, 1}, refused(unix.EPERM)},
		{"socket", [6]uint64{unix.AF_INET, unix.SOCK_PACKET, 0x300}, refused(unix.EPERM)},
		{"socket", [6]uint64{unix.AF_INET, unix.SOCK_STREAM | unix.SOCK_CLOEXEC | unix.SOCK_NONBLOCK, 0}, allow.action},
		{"socket", [6]uint64{unix.AF_INET6, unix.SOCK_DGRAM, unix.IPPROTO_UDP}, allow.action},
		{"socket", [6]uint64{unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_MPTCP}, refused(unix.EPROTONOSUPPORT)},
		{"socket", [6]uint64{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE}, allow.action},
		{"socket", [6]uint64{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER}, refused(unix.EPROTONOSUPPORT)},
		{"socket", [6]uint64{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_XFRM}, refused(unix.EPROTONOSUPPORT)},
		{"socket", [6]uint64{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_KOBJECT_UEVENT}, refused(unix.EPROTONOSUPPORT)},
		{"renameat2", [6]uint64{0, 0, 0, 0, unix.RENAME_WHITEOUT}, refused(unix.EPERM)},
		{"renameat2", [6]uint64{0, 0, 0, 0, unix.RENAME_EXCHANGE}, allow.action},
		{"chmod", [6]uint64{0, 0o4755}, refused(unix.EPERM)},
		{"chmod", [6]uint64{0, 0o755}, allow.action},
		{"fchmodat2", [6]uint64{0, 0, 0o2755}, refused(unix.EPERM)},
		{"openat", [6]uint64{0, 0, unix.O_CREAT, 0o4755}, refused(unix.EPERM)},
		{"openat", [6]uint64{0, 0, unix.O_TMPFILE, 0o4755}, refused(unix.EPERM)},
		{"openat", [6]uint64{0, 0, unix.O_RDONLY | unix.O_DIRECTORY, 0o4755}, allow.action}, // no mode, then
		{"open", [6]uint64{0, unix.O_CREAT | unix.O_WRONLY, 0o2644}, refused(unix.EPERM)},
		{"openat2", [6]uint64{}, refused(unix.ENOSYS)},
		{"mknodat", [6]uint64{0, 0, unix.S_IFCHR | 0o600}, refused(unix.EPERM)},
		{"mknodat", [6]uint64{0, 0, unix.S_IFBLK | 0o600}, refused(unix.EPERM)},
		{"mknodat", [6]uint64{0, 0, unix.S_IFIFO | 0o600}, allow.action},
		{"mknodat", [6]uint64{0, 0, unix.S_IFREG | 0o4755}, refused(unix.EPERM)},
		{"mknod", [6]uint64{0, 0o4755}, refused(unix.EPERM)}, // no type is a file
		{"personality", [6]uint64{0x0040000}, refused(unix.EPERM)},
		{"personality", [6]uint64{0xffffffff}, allow.action},
		{"personality", [6]uint64{0xffffffffffffffff}, allow.action},
		{"prctl", [6]uint64{unix.PR_SET_MM}, refused(unix.EINVAL)},
		{"prctl", [6]uint64{unix.PR_SET_NAME}, allow.action},
		{"prctl", [6]uint64{unix.PR_SET_VMA}, allow.action},
		{"prctl", [6]uint64{unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER}, refused(unix.EINVAL)},
		{"prctl", [6]uint64{unix.PR_SET_SECCOMP | high, unix.SECCOMP_MODE_FILTER | high}, refused(unix.EINVAL)},
		{"prctl", [6]uint64{unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_STRICT}, allow.action},
		{"seccomp", [6]uint64{unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_NEW_LISTENER}, refused(unix.EINVAL)},
		{"seccomp", [6]uint64{unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC}, refused(unix.EINVAL)},
		{"seccomp", [6]uint64{unix.SECCOMP_GET_ACTION_AVAIL}, allow.action},
		{"fallocate", [6]uint64{0, 0}, allow.action},
		{"fallocate", [6]uint64{0, unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE}, allow.action},
		{"fallocate", [6]uint64{0, unix.FALLOC_FL_KEEP_SIZE}, refused(unix.EOPNOTSUPP)},
		{"fallocate", [6]uint64{0, unix.FALLOC_FL_KEEP_SIZE | high}, refused(unix.EOPNOTSUPP)},
		{"fallocate", [6]uint64{0, unix.FALLOC_FL_KEEP_SIZE | unix.FALLOC_FL_ZERO_RANGE}, refused(unix.EOPNOTSUPP)},
		{"fallocate", [6]uint64{0, unix.FALLOC_FL_INSERT_RANGE}, refused(unix.EOPNOTSUPP)},
		{"fcntl", [6]uint64{0, unix.F_SETLEASE, unix.F_WRLCK}, refused(unix.EINVAL)},
		{"fcntl", [6]uint64{0, unix.F_SETLEASE | high, unix.F_WRLCK}, refused(unix.EINVAL)},
		{"fcntl", [6]uint64{0, unix.F_NOTIFY, 2}, refused(unix.EINVAL)},
		{"fcntl", [6]uint64{0, 1040}, refused(unix.EINVAL)}, // F_SETDELEG, Linux 6.19
		{"fcntl", [6]uint64{0, 1041}, refused(unix.EINVAL)}, // whatever comes next
		{"fcntl", [6]uint64{0, unix.F_SETLK}, allow.action},
		{"fcntl", [6]uint64{0, unix.F_OFD_SETLKW}, allow.action},
		{"fcntl", [6]uint64{0, unix.F_DUPFD_CLOEXEC}, allow.action},
		{"setsockopt", [6]uint64{0, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER}, refused(unix.ENOPROTOOPT)},
		{"setsockopt", [6]uint64{0, unix.SOL_SOCKET | high, unix.SO_ATTACH_FILTER | high}, refused(unix.ENOPROTOOPT)},
		{"setsockopt", [6]uint64{0, unix.SOL_SOCKET, unix.SO_ATTACH_BPF}, refused(unix.ENOPROTOOPT)},
		{"setsockopt", [6]uint64{0, unix.SOL_SOCKET, unix.SO_ATTACH_REUSEPORT_CBPF}, refused(unix.ENOPROTOOPT)},
		{"setsockopt", [6]uint64{0, unix.SOL_SOCKET, unix.SO_ATTACH_REUSEPORT_EBPF}, refused(unix.ENOPROTOOPT)},
		{"setsockopt", [6]uint64{0, unix.SOL_SOCKET, unix.SO_REUSEADDR}, allow.action},
		{"setsockopt", [6]uint64{0, unix.IPPROTO_IPV6, 32}, refused(unix.ENOPROTOOPT)}, // IPV6_FLOWLABEL_MGR
		{"setsockopt", [6]uint64{0, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY}, allow.action},
		{"setsockopt", [6]uint64{0, unix.IPPROTO_TCP, unix.TCP_NODELAY}, allow.action},
		{"setsockopt", [6]uint64{0, unix.IPPROTO_TCP, unix.TCP_ULP}, refused(unix.ENOPROTOOPT)},
		{"setsockopt", [6]uint64{0, unix.IPPROTO_UDP, unix.UDP_ENCAP}, refused(unix.ENOPROTOOPT)},
		{"setsockopt", [6]uint64{0, unix.IPPROTO_UDPLITE, unix.UDP_ENCAP}, refused(unix.ENOPROTOOPT)},
		{"setsockopt", [6]uint64{0, unix.IPPROTO_UDP, unix.UDP_SEGMENT}, allow.action},
		{"setsockopt", [6]uint64{0, unix.IPPROTO_UDP, unix.UDP_GRO}, allow.action},
		{"mmap", [6]uint64{0, 4096, 3, unix.MAP_PRIVATE | unix.MAP_ANONYMOUS | unix.MAP_HUGETLB | 21<<26}, refused(unix.ENOMEM)},
		{"mmap", [6]uint64{0, 4096, 3, unix.MAP_PRIVATE | unix.MAP_ANONYMOUS | unix.MAP_NORESERVE | unix.MAP_STACK}, allow.action},
		{"memfd_create", [6]uint64{0, unix.MFD_HUGETLB | 21<<26}, refused(unix.EPERM)},
		{"memfd_create", [6]uint64{0, unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING}, allow.action},
		{"shmget", [6]uint64{0, 4096, 0o600 | 0o4000}, refused(unix.EPERM)},
		{"shmget", [6]uint64{0, 4096, 0o600 | unix.IPC_CREAT}, allow.action},
	} {
		got, err := run(program, unix.AUDIT_ARCH_X86_64, numbers[c.name], c.args)
		if err != nil || got != c.want {
			t.Errorf("%s%x: %s, %v; want %s", c.name, c.args, word(got), err, word(c.want))
		}
	}
}

// No way into the kernel lets code make a child of its parent's, which is
// caisson on some levels: whatever else the flags say, and by either call.
func TestNoSiblings(t *testing.T) {
	for _, d := range []struct {
		name   string
		goarch string // the filter's
		arch   uint32
		calls  []uint32 // clone and clone3
	}{
		{"amd64", "amd64", unix.AUDIT_ARCH_X86_64, []uint32{56, 435}},
		{"x32", "amd64", unix.AUDIT_ARCH_X86_64, []uint32{56 | 0x40000000, 435 | 0x40000000}},
		{"i386", "amd64", unix.AUDIT_ARCH_I386, []uint32{120, 435}},
		{"arm64", "arm64", unix.AUDIT_ARCH_AARCH64, []uint32{220, 435}},
		{"arm", "arm64", unix.AUDIT_ARCH_ARM, []uint32{120, 435}},
	} {
		program, err := Untrusted(d.goarch)
		if err != nil {
			t.Fatal(err)
		}
		for _, call := range d.calls {
			for bit := range 64 {
				flags := uint64(unix.CLONE_PARENT) | 1<<bit
				if answer, err := run(program, d.arch, call, [6]uint64{flags}); err != nil || answer == unix.SECCOMP_RET_ALLOW {
					t.Errorf("%s: call %#x with flags %#x: %s, %v", d.name, call, flags, word(answer), err)
				}
			}
		}
	}
}

func refused(e unix.Errno) uint32 { return errno(e).action }

// Each call of the kernel was looked at: none gets its answer by being unknown.
func TestEveryCallIsNamed(t *testing.T) {
	for _, goarch := range []string{"amd64", "arm64"} {
		l, err := untrusted(goarch)
		if err != nil {
			t.Fatal(err)
		}
		for n, name := range byNumber(goarch) {
			if _, ok := l.calls[n]; !ok {
				t.Errorf("%s: %s is in no group", goarch, name)
			}
		}
	}
	if _, err := Untrusted("riscv64"); err == nil {
		t.Error("a filter for an architecture that has none")
	}
}

// The numbers are golang.org/x/sys's, which are the kernel's.
func TestNumbers(t *testing.T) {
	out, err := exec.Command("go", "list", "-f", "{{.Dir}}", "golang.org/x/sys/unix").Output()
	if err != nil {
		t.Fatal(err)
	}
	dir := strings.TrimSpace(string(out))
	line := regexp.MustCompile(`(?m)^\s+SYS_(\w+)\s+= (\d+)$`)
	for _, goarch := range []string{"amd64", "arm64"} {
		src, err := os.ReadFile(filepath.Join(dir, "zsysnum_linux_"+goarch+".go"))
		if err != nil {
			t.Fatal(err)
		}
		want := map[uint32]string{}
		for _, m := range line.FindAllStringSubmatch(string(src), -1) {
			n, _ := strconv.Atoi(m[2])
			if name := strings.ToLower(m[1]); name != "arch_specific_syscall" { // where such calls begin
				want[uint32(n)] = name
			}
		}
		if diff := cmp.Diff(want, byNumber(goarch)); diff != "" || len(want) < 300 {
			t.Errorf("%s: %d calls\n%s", goarch, len(want), diff)
		}
	}
}

// A program answers as the list it was made from, for any list.
func TestAssembleIsFaithful(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := randomList(t)
		program, err := l.assemble()
		if err != nil {
			t.Fatal(err)
		}
		check := func(arch, number uint32, args [6]uint64) {
			got, err := run(program, arch, number, args)
			if want := l.judge(arch, number, args); err != nil || got != want {
				t.Fatalf("%#x %d %x: %#x, %v; want %#x", arch, number, args, got, err, want)
			}
		}
		var args [6]uint64
		for i := range args {
			args[i] = rapid.Uint64().Draw(t, "arg")
		}
		for n, v := range l.calls {
			for _, args := range tries(v) {
				check(l.arch, n, args)
			}
			check(l.arch, n, args)
			check(l.arch, n-1, args)
			check(l.arch, n+1, args)
			check(l.arch+1, n, args)
		}
		check(l.arch, rapid.Uint32().Draw(t, "number"), args)
	})
}

func randomList(t *rapid.T) *list {
	l := &list{arch: rapid.Uint32().Draw(t, "arch"), foreign: verdict{action: 7}, other: verdict{action: 8}, calls: map[uint32]verdict{}}
	seed := rapid.Uint64().Draw(t, "seed")
	random := rand.New(rand.NewPCG(seed, seed))
	near := random.IntN(2) == 0
	for range rapid.IntRange(0, 400).Draw(t, "calls") {
		n := random.Uint32()
		if near {
			n %= 450
		}
		if random.IntN(50) == 0 {
			n = ^uint32(0) - n%2
		}
		depth := 0
		if random.IntN(20) == 0 {
			depth = 2
		}
		l.calls[n] = randomVerdict(random, depth)
	}
	return l
}

func randomVerdict(random *rand.Rand, depth int) verdict {
	if depth == 0 || random.IntN(3) == 0 {
		return verdict{action: random.Uint32N(4)}
	}
	t := &test{arg: random.Uint32N(6), mask: random.Uint32(), then: randomVerdict(random, depth-1), not: randomVerdict(random, depth-1)}
	if random.IntN(2) == 0 {
		t.mask = 0xff
		for range 1 + random.IntN(60) {
			t.values = append(t.values, random.Uint32()&t.mask)
		}
	}
	if t.values == nil && t.mask == 0 {
		t.mask = 1
	}
	return verdict{test: t}
}

func TestAssembleRefuses(t *testing.T) {
	for name, v := range map[string]verdict{
		"seventh argument": {test: &test{arg: 6, mask: 1}},
		"too many values":  {test: &test{values: make([]uint32, 256)}},
		"tests nothing":    {test: &test{}},
	} {
		if _, err := (&list{calls: map[uint32]verdict{1: v}}).assemble(); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	long := &list{calls: map[uint32]verdict{}}
	for n := range uint32(3000) {
		long.calls[2*n] = allow
	}
	if _, err := long.assemble(); err == nil {
		t.Error("longer than the kernel takes: no error")
	}
}

// byNumber are the names of an architecture's calls.
func byNumber(goarch string) map[uint32]string {
	names := map[uint32]string{}
	for _, c := range calls {
		n := c.amd64
		if goarch == "arm64" {
			n = c.arm64
		}
		if n >= 0 {
			names[uint32(n)] = c.name
		}
	}
	return names
}

// word is an action as testdata spells it.
func word(action uint32) string {
	switch action & unix.SECCOMP_RET_ACTION_FULL {
	case unix.SECCOMP_RET_ALLOW:
		return "allow"
	case unix.SECCOMP_RET_KILL_PROCESS:
		return "kill"
	case unix.SECCOMP_RET_ERRNO:
		return unix.ErrnoName(unix.Errno(action & unix.SECCOMP_RET_DATA))
	}
	return fmt.Sprintf("%#x", action)
}

func expression(v verdict) string {
	if v.test == nil {
		return word(v.action)
	}
	s := fmt.Sprintf("arg%d", v.test.arg)
	if v.test.mask != 0 {
		s += fmt.Sprintf(" & %#x", v.test.mask)
	}
	if v.test.values != nil {
		s += fmt.Sprintf(" in %#x", v.test.values)
	}
	return fmt.Sprintf("if %s (%s) else (%s)", s, expression(v.test.then), expression(v.test.not))
}

func BenchmarkAssemble(b *testing.B) {
	for b.Loop() {
		if _, err := assembleUntrusted("amd64"); err != nil {
			b.Fatal(err)
		}
	}
}
