// SPDX-License-Identifier: Apache-2.0

// Package weakroot has a uid 0 that may not mount, as containers have it, run as an ordinary
// user does: in a user namespace, where it is another uid and gets what sandboxes need.
package weakroot

import (
	"os"
	"os/signal"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// uid is who root is in the namespace: to the rest of the program an ordinary user, of a
// number that systems give to no account, whose name it would be recorded by.
const uid = 61000

// Enter runs this program again in such a namespace, and says with which exit code it ended.
// It is not done, and nothing is changed, for all others: ordinary users, a root that may
// mount, and one that may make no namespace, which the program hears of later. Since Linux
// 5.12 a namespace that has root's files needs CAP_SETFCAP.
//
// It is to be called before the program does anything else. Signals are passed on. The
// program ends when this process does.
func Enter() (code int, done bool) {
	if !needed() {
		return 0, false
	}
	runtime.LockOSThread() // the parent whose death kills is the thread
	defer runtime.UnlockOSThread()
	ids := []syscall.SysProcIDMap{{ContainerID: uid, HostID: 0, Size: 1}}
	if os.Getenv("USER") == "" {
		_ = os.Setenv("USER", "root") // by which it is recorded, where it has no account
	}
	p, err := os.StartProcess("/proc/self/exe", os.Args, &os.ProcAttr{
		Files: []*os.File{os.Stdin, os.Stdout, os.Stderr},
		Sys:   &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER, UidMappings: ids, GidMappings: ids, Pdeathsig: syscall.SIGKILL},
	})
	if err != nil {
		return 0, false
	}
	in := make(chan os.Signal, 16)
	signal.Notify(in, passed()...)
	go func() {
		for s := range in {
			_ = p.Signal(s) // it may have ended
		}
	}()
	state, err := p.Wait()
	if err != nil {
		return 1, true
	}
	if s, ok := state.Sys().(syscall.WaitStatus); ok && s.Signaled() {
		return 128 + int(s.Signal()), true // as a shell says it
	}
	return state.ExitCode(), true
}

// passed are the signals that the program is to hear of. A terminal sends its own to both.
func passed() []os.Signal {
	all := []os.Signal{syscall.SIGTERM, syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2}
	typed := []os.Signal{syscall.SIGINT, syscall.SIGQUIT}
	if _, err := unix.IoctlGetTermios(0, unix.TCGETS); err != nil {
		return append(all, typed...)
	}
	signal.Ignore(typed...)
	return all
}

// needed says that this is a root that may not mount, and may make a namespace of its files.
func needed() bool {
	if os.Geteuid() != 0 {
		return false
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return false
	}
	has := func(c int) bool { return data[c/32].Effective&(1<<(c%32)) != 0 }
	return !has(unix.CAP_SYS_ADMIN) && has(unix.CAP_SETFCAP)
}
