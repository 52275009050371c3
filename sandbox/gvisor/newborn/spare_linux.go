// SPDX-License-Identifier: Apache-2.0

package newborn

import (
	"os"
	"path"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Keep has one shim ready for the next Take of a process that makes sandboxes one
// after the other, unless there is one. It is started in the background, out of an
// open program, which stays the caller's, for a sandbox whose directory will be in dir.
// It is ended when it has waited for idle, or with its owner; and it is not taken when
// its owner has become another than it was (likeness), since a shim is what its owner
// was when it was started. The caller knows that it can step into its group.
func Keep(program *os.File, dir string, idle time.Duration) {
	mu.Lock()
	defer mu.Unlock()
	if begun != nil {
		return
	}
	name := "/proc/self/fd/" + strconv.Itoa(int(program.Fd()))
	own, err := os.OpenFile(name, unix.O_PATH, 0)
	if err != nil {
		return
	}
	e := expect()
	begun = e
	e.late = time.AfterFunc(idle, func() {
		mu.Lock()
		idle := begun == e
		if idle {
			begun = nil
		}
		mu.Unlock()
		if idle {
			e.discard()
		}
	})
	go e.make(func() (*os.File, error) { return own, nil }, path.Clean(dir))
}

// Await waits until what was begun, if anything, is a process.
func Await() {
	mu.Lock()
	e := begun
	mu.Unlock()
	if e != nil {
		<-e.over
	}
}

// likeness is what a process has of its owner's that started it, as long as nothing of
// it changes: who it is and what it may do, its bounds and priorities, its namespaces
// and control groups, and where the names of its root and of the directory lead that its
// sandbox's will be in: of the mounts it may have a copy, which does not change with them.
type likeness struct{ dir, text string }

// look looks at what the calling process is like, with sandboxes' directories in dir.
func look(dir string) (*likeness, error) {
	text, err := describe(dir)
	return &likeness{dir, text}, err
}

// still says whether this process is what it was when it started the shim, for a sandbox
// in the directory stateDir. What was started without a look at it was just started.
func (s *Shim) still(stateDir string) bool {
	return s.born == nil || s.born.still(stateDir) && s.reachable()
}

func (l *likeness) still(stateDir string) bool {
	if path.Dir(stateDir) != l.dir {
		return false
	}
	own, err := place(stateDir)
	parent, parentErr := place(l.dir)
	if err != nil || parentErr != nil || own.mount != parent.mount {
		return false
	}
	text, err := describe(l.dir)
	return err == nil && text == l.text
}

// placed is where a name leads.
type placed struct {
	mount       uint64 // which is not another's later, where the kernel (6.8) knows such numbers
	device, ino uint64
}

func place(name string) (placed, error) {
	const unique = 0x4000 // STATX_MNT_ID_UNIQUE (statx(2))
	var st unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, name, 0, unix.STATX_INO|unix.STATX_MNT_ID|unique, &st)
	return placed{st.Mnt_id, unix.Mkdev(st.Dev_major, st.Dev_minor), st.Ino}, err
}

// inherited are the lines of /proc/self/status that tell of what a child has, too.
var inherited = []string{
	"Uid", "Gid", "Groups", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp",
	"Seccomp_filters", "Speculation_Store_Bypass", "SpeculationIndirectBranch", "Cpus_allowed", "Mems_allowed",
}

// describe puts into words what a child of this process would have of it.
func describe(dir string) (string, error) {
	var b strings.Builder
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(status)) {
		for _, name := range inherited {
			if rest, ok := strings.CutPrefix(line, name); ok && strings.HasPrefix(rest, ":") {
				b.WriteString(line)
			}
		}
	}
	for _, name := range []string{"limits", "cgroup", "oom_score_adj"} {
		data, err := os.ReadFile("/proc/self/" + name)
		if err != nil {
			return "", err
		}
		b.Write(data)
	}
	for _, name := range []string{"cgroup", "ipc", "mnt", "net", "pid_for_children", "time_for_children", "user", "uts"} {
		link, err := os.Readlink("/proc/self/ns/" + name)
		if err != nil && !os.IsNotExist(err) { // a kernel without that sort
			return "", err
		}
		b.WriteString(link + "\n")
	}
	n, err := priorities()
	if err != nil {
		return "", err
	}
	for _, name := range []string{"/", dir} { // the link to one's root in /proc is read from there, as "/"
		at, err := place(name)
		if err != nil {
			return "", err
		}
		n = append(n, at.mount, at.device, at.ino)
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return "", err
	}
	for _, n := range append(n, uint64(fs.Flags)) {
		b.WriteString(strconv.FormatUint(n, 10) + "\n")
	}
	return b.String(), nil
}

// priorities are those of the calling thread, for the processor and for the disk, and what
// the kernel does with capabilities when a program is executed.
func priorities() ([]uint64, error) {
	cpu, err := unix.SchedGetAttr(0, 0)
	if err != nil {
		return nil, err
	}
	const process = 1 // IOPRIO_WHO_PROCESS (ioprio_get(2))
	disk, _, errno := unix.Syscall(unix.SYS_IOPRIO_GET, process, 0, 0)
	if errno != 0 && errno != unix.ENOSYS {
		return nil, errno
	}
	bits, err := unix.PrctlRetInt(unix.PR_GET_SECUREBITS, 0, 0, 0, 0)
	return []uint64{uint64(cpu.Policy), uint64(cpu.Nice), uint64(cpu.Priority), uint64(disk), uint64(bits)}, err
}

// reachable says whether this process may look into a spare, as it may into what it
// starts now: not where it has put itself under Landlock's rules since, or under those
// of another security module, of which nothing in /proc tells (ptrace(2), "Ptrace access
// mode checking"). A spare that has died is not, either.
func (s *Shim) reachable() bool {
	_, err := os.Readlink("/proc/" + strconv.Itoa(s.Process.Pid) + "/root")
	return err == nil
}
