// SPDX-License-Identifier: Apache-2.0

package landlock

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Access is what may be done with a file or with everything beneath a
// directory. The zero value is reading.
type Access int

const (
	// Read reads, lists and executes.
	Read Access = iota
	// Write reads and executes, and makes, changes, renames and removes
	// anything but devices.
	Write
	// Device reads, writes and controls (ioctl) devices that are there.
	Device
	// List lists directories, and reads no file in them.
	List
	// Inspect is Read without executing.
	Inspect
	// Change is Write without executing.
	Change
)

// Path is a file or directory that stays within reach.
type Path struct {
	FD     int // O_PATH or wider; not kept
	Access Access
}

// Options are what a ruleset leaves allowed. The zero value allows nothing.
type Options struct {
	Paths []Path
	// TCP leaves bind and connect alone; otherwise they are refused.
	TCP bool
}

// Ruleset is a ruleset that a process can put itself under. It is not for
// concurrent use, except that any number of processes may enter it.
type Ruleset struct {
	file  *os.File
	files uint64 // LANDLOCK_ACCESS_FS_* that are refused where no rule allows them
	abi   int
}

// ABI is the kernel's version of Landlock: 0 where there is none, or where it
// was left out at boot.
func ABI() int {
	abi, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return 0
	}
	return int(abi)
}

// New makes a ruleset for this kernel. Where Landlock is missing, or has ABI 1,
// which refuses every move from one directory to another and so breaks ordinary
// programs, it returns an error that is errors.ErrUnsupported.
func New(o Options) (*Ruleset, error) { return newFor(ABI(), o) }

// oldest is the first ABI that lets files be moved.
const oldest = 2

func newFor(abi int, o Options) (*Ruleset, error) {
	if abi < oldest {
		return nil, fmt.Errorf("landlock: %w", unix.EOPNOTSUPP)
	}
	attr, size := attributes(abi, o)
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), size, 0)
	if errno != 0 {
		return nil, fmt.Errorf("make a landlock ruleset: %w", errno)
	}
	r := &Ruleset{file: os.NewFile(fd, "landlock ruleset"), files: attr.Handled_access_fs, abi: abi} // close-on-exec by itself
	for _, p := range o.Paths {
		if err := r.Allow(p); err != nil {
			r.Close()
			return nil, err
		}
	}
	return r, nil
}

// attributes asks for all that a kernel of this ABI can refuse. The structure
// grew; an older kernel refuses one that is longer than it knows.
func attributes(abi int, o Options) (attr unix.LandlockRulesetAttr, size uintptr) {
	attr.Handled_access_fs = filesOf(abi)
	size = unsafe.Sizeof(attr.Handled_access_fs)
	if abi >= 4 {
		size += unsafe.Sizeof(attr.Handled_access_net)
		if !o.TCP {
			attr.Handled_access_net = unix.LANDLOCK_ACCESS_NET_BIND_TCP | unix.LANDLOCK_ACCESS_NET_CONNECT_TCP
		}
	}
	if abi >= 6 {
		size += unsafe.Sizeof(attr.Scoped)
		attr.Scoped = unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | unix.LANDLOCK_SCOPE_SIGNAL
	}
	return attr, size
}

// filesOf is what can be refused about files.
func filesOf(abi int) uint64 {
	files := uint64(1<<13 - 1) // from EXECUTE to MAKE_SYM
	for _, later := range []struct {
		abi    int
		access uint64
	}{{2, unix.LANDLOCK_ACCESS_FS_REFER}, {3, unix.LANDLOCK_ACCESS_FS_TRUNCATE}, {5, unix.LANDLOCK_ACCESS_FS_IOCTL_DEV}} {
		if abi >= later.abi {
			files |= later.access
		}
	}
	return files
}

const (
	readAccess   = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR | unix.LANDLOCK_ACCESS_FS_EXECUTE
	deviceAccess = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR | unix.LANDLOCK_ACCESS_FS_WRITE_FILE |
		unix.LANDLOCK_ACCESS_FS_TRUNCATE | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	noDevices = unix.LANDLOCK_ACCESS_FS_MAKE_CHAR | unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	// ofFiles are the rights that mean something for what is no directory; the
	// kernel refuses a rule with others there.
	ofFiles = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_EXECUTE |
		unix.LANDLOCK_ACCESS_FS_TRUNCATE | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
)

// Rule is the argument of landlock_add_rule(FD(), LANDLOCK_RULE_PATH_BENEATH,
// &rule, 0) for a child that opens what it has mounted itself: a rule holds for
// an inode, so one for a directory says nothing of what is mounted over it
// later. The child puts its descriptor into Parent_fd.
func (r *Ruleset) Rule(a Access, dir bool) unix.LandlockPathBeneathAttr {
	allowed := uint64(readAccess)
	switch a {
	case Write:
		allowed = r.files &^ noDevices
	case Device:
		allowed = deviceAccess
	case List:
		allowed = unix.LANDLOCK_ACCESS_FS_READ_DIR
	case Inspect:
		allowed &^= unix.LANDLOCK_ACCESS_FS_EXECUTE
	case Change:
		allowed = r.files &^ (noDevices | unix.LANDLOCK_ACCESS_FS_EXECUTE)
	}
	if !dir {
		allowed &= ofFiles
	}
	return unix.LandlockPathBeneathAttr{Allowed_access: allowed & r.files, Parent_fd: -1}
}

// Allow leaves p within reach, before the ruleset is entered. What lies on no
// file system that could ever be mounted (a memfd, a pipe) is in no ruleset's
// reach and needs no rule.
func (r *Ruleset) Allow(p Path) error {
	var st unix.Stat_t
	if err := unix.Fstat(p.FD, &st); err != nil {
		return fmt.Errorf("landlock rule: %w", err)
	}
	rule := r.Rule(p.Access, st.Mode&unix.S_IFMT == unix.S_IFDIR)
	rule.Parent_fd = int32(p.FD)
	_, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, r.file.Fd(), unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&rule)), 0, 0, 0)
	if errno != 0 && errno != unix.EBADFD {
		return fmt.Errorf("landlock rule: %w", errno)
	}
	return nil
}

// FD is for landlock_restrict_self; it is valid until Close, which a caller
// that only keeps the number must not let happen early (runtime.KeepAlive).
func (r *Ruleset) FD() uintptr { return r.file.Fd() }

// Flags are landlock_restrict_self's: what a sandbox is refused is no news for
// the host's audit log, where the kernel would write it.
func (r *Ruleset) Flags() uintptr {
	if r.abi >= 7 {
		return unix.LANDLOCK_RESTRICT_SELF_LOG_SAME_EXEC_OFF
	}
	return 0
}

// Close lets go of the ruleset. Processes that are under it stay there.
func (r *Ruleset) Close() error { return r.file.Close() }

// Missing says what a kernel of this ABI cannot refuse, in phrases; empty for
// one that can do all that this package knows.
func Missing(abi int) []string {
	var missing []string
	for _, m := range []struct {
		abi  int
		what string
	}{
		{oldest, "access to files outside"},
		{3, "cutting off files that are read-only"},
		{4, "TCP connections"},
		{5, "control of devices"},
		{6, "signals and abstract sockets across sandboxes"},
	} {
		if abi < m.abi {
			missing = append(missing, m.what)
		}
	}
	return missing
}
