// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// process is what the host's kernel shows of one process. Names in it are
// chosen by the code that runs there.
type process struct {
	pid, parent int
	began       string // in ticks since boot: with the pid, no other process
	tty         int
	argv        []string
	status      map[string]string
	namespaces  map[string]string
	environ     []byte
	group       string
	mounts      []string // lines of mountinfo
	personality string
	cores       string // soft and hard limit of core files
	files       []descriptor
	hidden      error // the user may not look at its namespaces and descriptors
}

// same says that q is p, seen at another time.
func (p *process) same(q *process) bool { return p.pid == q.pid && p.began == q.began }

// name is argv[0].
func (p *process) name() string {
	if len(p.argv) > 0 {
		return filepath.Base(p.argv[0])
	}
	return strings.TrimSpace(p.status["Name"])
}

func (p *process) String() string { return fmt.Sprintf("%s (pid %d)", p.name(), p.pid) }

// descriptor is one open file of a process.
type descriptor struct {
	number   int
	link     string
	mode     uint32 // st_mode; 0 when it could not be looked at
	dev, ino uint64
	rdev     uint64
	write    bool
	protocol string // of a socket: "TCP", "ALG"
	system   int64  // f_type of its file system
}

// smallest of a process: the parent's number, its start and its terminal.
func stat(pid int) (*process, error) {
	data, err := readProc(pid, "stat")
	if err != nil {
		return nil, err
	}
	// The name is in parentheses and may hold any byte but NUL; fields are
	// counted from the last parenthesis (proc_pid_stat(5)).
	_, rest, ok := cutLast(data, ") ")
	fields := strings.Fields(rest)
	if !ok || len(fields) < 20 {
		return nil, errors.New("not a stat line")
	}
	p := &process{pid: pid, began: fields[19]}
	p.parent, _ = strconv.Atoi(fields[1])
	p.tty, _ = strconv.Atoi(fields[4])
	return p, nil
}

// exiting is set of a process from its first step to its end, long before it is a
// zombie (PF_EXITING in include/linux/sched.h). From then on each hierarchy of control
// groups of version 1 shows it in its root (proc_cgroup_show in kernel/cgroup/cgroup.c).
const exiting = 0x4

// ending says that a process has ended, or is about to.
func ending(pid int) bool {
	data, err := readProc(pid, "stat")
	_, rest, _ := cutLast(data, ") ")
	fields := strings.Fields(rest)
	if err != nil || len(fields) < 7 || fields[0] == "Z" || fields[0] == "X" {
		return true
	}
	flags, err := strconv.ParseUint(fields[6], 10, 64)
	return err != nil || flags&exiting != 0
}

func cutLast(b []byte, sep string) (before, after string, found bool) {
	i := bytes.LastIndex(b, []byte(sep))
	if i < 0 {
		return string(b), "", false
	}
	return string(b[:i]), string(b[i+len(sep):]), true
}

// readProc reads a file of /proc/pid, up to 1 MiB.
func readProc(pid int, name string) ([]byte, error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/%s", pid, name))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, 1<<20))
}

// argvOf is a process's command line; nil for one that is gone.
func argvOf(pid int) []string {
	data, err := readProc(pid, "cmdline")
	if err != nil || len(data) == 0 {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(data), "\x00"), "\x00")
}

// everybody is a list of all processes, with what stat shows.
func everybody() []*process {
	entries, _ := os.ReadDir("/proc")
	var all []*process
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			if p, err := stat(pid); err == nil {
				all = append(all, p)
			}
		}
	}
	return all
}

// descendants of a process are its children, their children, and so on.
func descendants(all []*process, of int) []*process {
	var found []*process
	for queue := []int{of}; len(queue) > 0; queue = queue[1:] {
		for _, p := range all {
			if p.parent == queue[0] && p.pid != of {
				found = append(found, p)
				queue = append(queue, p.pid)
			}
		}
	}
	return found
}

// ours are the processes of sandboxes of this run: what descends from this
// process, whose command line has the nonce, or who shares a pid namespace with
// one of these that is not the host's. except are no sandbox's.
func ours(nonce string, except ...int) []*process {
	all := everybody()
	skip := func(p *process) bool { return p.pid == os.Getpid() || slices.Contains(except, p.pid) }
	var found []*process
	known := map[int]bool{}
	add := func(p *process) {
		if !known[p.pid] && !skip(p) {
			known[p.pid] = true
			found = append(found, p)
		}
	}
	for _, p := range descendants(all, os.Getpid()) {
		add(p)
	}
	own, _ := os.Readlink("/proc/self/ns/pid")
	spaces := map[string]bool{}
	for _, p := range all {
		if known[p.pid] || nonced(p.pid, nonce) {
			add(p)
			if ns, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", p.pid)); err == nil && ns != own {
				spaces[ns] = true
			}
		}
	}
	for _, p := range all {
		if ns, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", p.pid)); err == nil && spaces[ns] {
			add(p)
		}
	}
	return found
}

func nonced(pid int, nonce string) bool {
	return slices.ContainsFunc(argvOf(pid), func(arg string) bool { return strings.Contains(arg, nonce) })
}

// look fills in what the host shows of p. What ends meanwhile is an error. A
// process that does not let its own user look (PR_SET_DUMPABLE) shows its status
// all the same.
func (p *process) look() error {
	p.argv = argvOf(p.pid)
	status, err := readProc(p.pid, "status")
	if err != nil {
		return err
	}
	p.status = make(map[string]string)
	for line := range strings.Lines(string(status)) {
		key, value, _ := strings.Cut(line, ":")
		p.status[key] = strings.TrimSpace(value)
	}
	p.environ, _ = readProc(p.pid, "environ")
	group, _ := readProc(p.pid, "cgroup")
	p.group = string(group)
	mounts, _ := readProc(p.pid, "mountinfo")
	p.mounts = strings.Split(strings.TrimSuffix(string(mounts), "\n"), "\n")
	personality, _ := readProc(p.pid, "personality")
	p.personality = strings.TrimSpace(string(personality))
	limits, err := readProc(p.pid, "limits") // prlimit would need a capability that not every root has
	if err != nil {
		return err
	}
	p.cores = coreLimit(string(limits))
	p.hidden = p.lookInside()
	again, err := stat(p.pid)
	if err != nil || !p.same(again) || ending(p.pid) { // what ends is in no control group any more
		return errors.New("it has ended")
	}
	return nil
}

// lookInside fills in what only those may see who could debug p.
func (p *process) lookInside() (err error) {
	p.namespaces = make(map[string]string)
	for _, ns := range []string{"user", "mnt", "net", "pid", "ipc", "uts", "cgroup"} {
		if p.namespaces[ns], err = os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", p.pid, ns)); err != nil {
			return err
		}
	}
	p.files, err = descriptors(p.pid)
	return err
}

// coreLimit is a line of /proc/pid/limits: "0 0", or "unlimited unlimited".
func coreLimit(limits string) string {
	for line := range strings.Lines(limits) {
		if rest, ok := strings.CutPrefix(line, "Max core file size"); ok {
			if f := strings.Fields(rest); len(f) >= 2 {
				return f[0] + " " + f[1]
			}
		}
	}
	return ""
}

// descriptors of a process, through the kernel's links to the open files
// themselves. Nothing is opened.
func descriptors(pid int) ([]descriptor, error) {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var all []descriptor
	for _, e := range entries {
		path := dir + "/" + e.Name()
		link, err := os.Readlink(path)
		if err != nil {
			continue
		}
		d := descriptor{link: link}
		d.number, _ = strconv.Atoi(e.Name())
		var st unix.Stat_t
		if unix.Stat(path, &st) == nil {
			d.mode, d.dev, d.ino, d.rdev = st.Mode, uint64(st.Dev), st.Ino, uint64(st.Rdev)
		}
		if strings.HasPrefix(link, "socket:") {
			name := make([]byte, 64)
			if n, err := unix.Getxattr(path, "system.sockprotoname", name); err == nil {
				d.protocol = strings.TrimRight(string(name[:n]), "\x00")
			}
		} else {
			var fs unix.Statfs_t
			if unix.Statfs(path, &fs) == nil {
				d.system = int64(fs.Type)
			}
		}
		info, _ := readProc(pid, "fdinfo/"+e.Name())
		d.write = writable(string(info))
		all = append(all, d)
	}
	return all, nil
}

// writable reads the access mode out of fdinfo, where it is octal.
func writable(info string) bool {
	for line := range strings.Lines(info) {
		if value, ok := strings.CutPrefix(line, "flags:"); ok {
			flags, err := strconv.ParseInt(strings.TrimSpace(value), 8, 64)
			return err == nil && flags&unix.O_ACCMODE != unix.O_RDONLY && flags&unix.O_PATH == 0
		}
	}
	return false
}
