// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"unsafe"
)

// ids are who root and the user are outside of a user namespace.
type ids struct{ rootUID, userUID, rootGID, userGID int }

// parseIDs reads -map.
func parseIDs(s string) (*ids, error) {
	var n [4]int
	parts := strings.Split(s, ":")
	if len(parts) != len(n) {
		return nil, errors.New("want U0:U:G0:G")
	}
	for i, p := range parts {
		v, err := strconv.ParseUint(p, 10, 32)
		if err != nil || v == 0 {
			return nil, fmt.Errorf("%q is no id that code may have", p)
		}
		n[i] = int(v)
	}
	return &ids{n[0], n[1], n[2], n[3]}, nil
}

// enter starts the agent again in a user namespace of its own, in which root
// and the user are others outside, and ends with it.
//
// It is for levels that give a first process no user namespace: a container of
// most engines. What stays outside is this process, which does nothing any
// more but wait. It is the container's root, with CAP_SETUID and CAP_SETGID,
// which it takes to write a map, and gives up both when it is written. Programs
// get a filter that lets none of them make a user namespace.
//
// It is the sandbox's own root before it makes the namespace, not the
// container's: what the kernel counts by user it counts against a namespace's
// owner as well (kernel/ucount.c), whom no other sandbox has.
func enter(m *ids, o Options, args []string) error {
	if err := m.become(); err != nil {
		return err
	}
	inner := []string{os.Args[0], "-inner"}
	for i := 0; i < len(args); i++ {
		if args[i] == "-map" {
			i++
			continue
		}
		inner = append(inner, args[i])
	}
	one := func(inside uint32, outside int) syscall.SysProcIDMap {
		return syscall.SysProcIDMap{ContainerID: int(inside), HostID: outside, Size: 1}
	}
	p, err := os.StartProcess("/proc/self/exe", inner, &os.ProcAttr{
		Env: os.Environ(), Files: []*os.File{os.Stdin, os.Stdout, os.Stderr},
		Sys: &syscall.SysProcAttr{
			Cloneflags:                 syscall.CLONE_NEWUSER,
			UidMappings:                []syscall.SysProcIDMap{one(0, m.rootUID), one(o.UID, m.userUID)},
			GidMappings:                []syscall.SysProcIDMap{one(0, m.rootGID), one(o.GID, m.userGID)},
			GidMappingsEnableSetgroups: true,
			Credential:                 &syscall.Credential{},
			Pdeathsig:                  syscall.SIGKILL,
		},
	})
	if err != nil {
		return fmt.Errorf("no user namespace can be made in the container: %w", err)
	}
	wipeEnvironment()
	if err := errors.Join(hide(), capabilities(0)); err != nil {
		return err
	}
	// The stream and the log are the agent's alone: a holder keeps their ends
	// from being seen.
	for fd := range 3 {
		if null, err := syscall.Open("/dev/null", syscall.O_RDWR|syscall.O_CLOEXEC, 0); err == nil {
			syscall.Dup3(null, fd, 0)
			syscall.Close(null)
		}
	}
	state, err := p.Wait()
	if err != nil {
		return err
	}
	ws := state.Sys().(syscall.WaitStatus)
	os.Exit(exitEvent(ws).Code)
	return nil
}

// become makes this process what root is inside, with what it takes to write a
// map and with nothing else.
func (m *ids) become() error {
	if _, _, e := syscall.AllThreadsSyscall(syscall.SYS_PRCTL, syscall.PR_SET_KEEPCAPS, 1, 0); e != 0 {
		return fmt.Errorf("keep capabilities: %w", e)
	}
	if err := syscall.Setgroups(nil); err != nil {
		return fmt.Errorf("leave all groups: %w", err)
	}
	if err := syscall.Setresgid(m.rootGID, m.rootGID, m.rootGID); err != nil {
		return fmt.Errorf("become group %d: %w", m.rootGID, err)
	}
	if err := syscall.Setresuid(m.rootUID, m.rootUID, m.rootUID); err != nil {
		return fmt.Errorf("become user %d: %w", m.rootUID, err)
	}
	if err := capabilities(1<<capSetGID | 1<<capSetUID); err != nil {
		return err
	}
	// A process that has become another belongs to the host's root in /proc, and
	// so would the child's map.
	if _, _, e := syscall.RawSyscall6(syscall.SYS_PRCTL, prSetDumpable, 1, 0, 0, 0, 0); e != 0 {
		return fmt.Errorf("own the map: %w", e)
	}
	return nil
}

const (
	prCapBSetDrop       = 24
	prSetChildSubreaper = 36
	lastCapability      = 63
	capVersion3         = 0x20080522
	capSetGID           = 6
	capSetUID           = 7
)

// capabilities leaves this process these and no others.
func capabilities(keep uint64) error {
	head := struct {
		version uint32
		pid     int32
	}{version: capVersion3}
	lo, hi := uint32(keep), uint32(keep>>32)
	data := [2]struct{ effective, permitted, inheritable uint32 }{{lo, lo, 0}, {hi, hi, 0}}
	_, _, e := syscall.AllThreadsSyscall(syscall.SYS_CAPSET, uintptr(unsafe.Pointer(&head)), uintptr(unsafe.Pointer(&data)), 0)
	runtime.KeepAlive(&head)
	runtime.KeepAlive(&data)
	if e != 0 {
		return fmt.Errorf("give up capabilities: %w", e)
	}
	return nil
}

// agentCapabilities are what the agent needs of its own namespace's root; see
// linux/capability.h: CHOWN, DAC_OVERRIDE, DAC_READ_SEARCH, FOWNER, FSETID, KILL,
// SETGID, SETUID, SETPCAP.
var agentCapabilities = []uintptr{0, 1, 2, 3, 4, 5, 6, 7, 8}

// settled says that this is the child of a container's first process, which
// cannot be signalled from here: "everything" is what is in the container.
var settled bool

// settleIn makes the agent what a first process is, though it is none: it gets
// the orphans, and gives up what it has no use for.
func settleIn() error {
	if _, _, e := syscall.RawSyscall6(syscall.SYS_PRCTL, prSetChildSubreaper, 1, 0, 0, 0, 0); e != 0 {
		return fmt.Errorf("become the orphans' parent: %w", e)
	}
	var keep uint64
	for c := range uintptr(lastCapability + 1) {
		if slices.Contains(agentCapabilities, c) {
			keep |= 1 << c
			continue
		}
		// EINVAL: this kernel has no such capability.
		if _, _, e := syscall.AllThreadsSyscall(syscall.SYS_PRCTL, prCapBSetDrop, c, 0); e != 0 && e != syscall.EINVAL {
			return fmt.Errorf("give up capability %d: %w", c, e)
		}
	}
	if err := capabilities(keep); err != nil {
		return err
	}
	settled = true
	return nil
}
