// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"net/http"
	"os"
	"path"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"github.com/caisson-run/caisson/guest/wire"
)

// user is whose rights an operation has.
type user struct {
	uid, gid   uint32
	name, home string
}

// defaultUser is whom a request means that names no user.
func (a *Agent) defaultUser() user {
	o := a.options
	return user{o.UID, o.GID, o.Name, o.Home}
}

// user finds out whom a request means: our header, envd's Basic
// authentication, or its username parameter.
func (a *Agent) user(r *http.Request) (user, error) {
	if h := r.Header.Get(wire.UserHeader); h != "" {
		u, g, _ := strings.Cut(h, ":")
		uid, err1 := strconv.ParseUint(u, 10, 32)
		gid, err2 := strconv.ParseUint(g, 10, 32)
		if err1 != nil || err2 != nil {
			return user{}, &connectError{codeUser, fmt.Sprintf("%q is not UID:GID", h)}
		}
		if d := a.defaultUser(); d.uid == uint32(uid) && d.gid == uint32(gid) {
			return d, nil
		}
		return user{uid: uint32(uid), gid: uint32(gid), home: a.options.Home}, nil
	}
	return a.userNamed(r, r.URL.Query().Get("username"))
}

// userNamed is user for requests that name theirs elsewhere.
func (a *Agent) userNamed(r *http.Request, other string) (user, error) {
	name, _, _ := r.BasicAuth()
	if name == "" {
		name = other
	}
	if name == "" || name == a.options.Name {
		return a.defaultUser(), nil
	}
	u := user{0, 0, "root", "/root"} // also where there is no passwd
	if name != "root" {
		var known bool
		if u, known = lookUp("/etc/passwd", name); !known {
			return user{}, &connectError{codeUser, fmt.Sprintf("invalid username: '%s'", name)}
		}
	}
	// The agent is root, too, so that code with this id would own it.
	if u.uid == 0 && !a.options.Sudo && a.options.UID != 0 {
		return user{}, &connectError{codePermission, "code cannot be root in this sandbox"}
	}
	return u, nil
}

// path makes an absolute path of what a request names: ~ and relative paths
// begin at home.
func (u user) path(p string) (string, error) {
	switch {
	case p == "":
		return "", &connectError{codeInvalid, "the request names no path"}
	case strings.Contains(p, "\x00"):
		return "", &connectError{codeInvalid, "the path has a NUL byte"}
	case len(p) > 1 && p[0] == '~' && p[1] != '/':
		return "", &connectError{codeInvalid, "cannot expand user-specific home dir"}
	case p == "~":
		return u.home, nil
	case strings.HasPrefix(p, "~/"):
		return path.Join(u.home, p[2:]), nil
	case !path.IsAbs(p):
		return path.Join(u.home, p), nil
	}
	return path.Clean(p), nil
}

// as calls f with u's rights on files, and no others: code inside lays out
// links and directories, and must not borrow the agent's rights with them.
//
// Linux keeps credentials per thread, and Go's own calls would change all of
// them, so the raw ones are used on a thread that is locked. (setfsuid would
// do and is missing in gVisor.) What f opens keeps working afterwards.
func (u user) as(f func() error) error {
	if os.Getuid() != 0 {
		if int(u.uid) != os.Getuid() {
			return &connectError{codePermission, fmt.Sprintf("the agent cannot act for user %d", u.uid)}
		}
		return f()
	}
	if u.uid == 0 {
		return f()
	}
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if err := assume(u.uid, u.gid); err != nil {
			done <- err
			return // still locked: the thread ends with the goroutine
		}
		err := f()
		if assume(0, 0) == nil {
			runtime.UnlockOSThread()
		}
		done <- err
	}()
	return <-done
}

// assume changes this thread's effective user and group. Leaving uid 0 drops
// the effective capabilities, coming back restores them.
func assume(uid, gid uint32) error {
	const keep = ^uintptr(0)
	group := func() syscall.Errno {
		_, _, e := syscall.RawSyscall(syscall.SYS_SETRESGID, keep, uintptr(gid), keep)
		return e
	}
	owner := func() syscall.Errno {
		_, _, e := syscall.RawSyscall(syscall.SYS_SETRESUID, keep, uintptr(uid), keep)
		return e
	}
	none := func() syscall.Errno {
		_, _, e := syscall.RawSyscall(syscall.SYS_SETGROUPS, 0, 0, 0)
		return e
	}
	steps := []func() syscall.Errno{none, group, owner}
	if uid == 0 {
		steps = []func() syscall.Errno{owner, group}
	}
	for _, step := range steps {
		if e := step(); e != 0 {
			return fmt.Errorf("act for user %d: %w", uid, e)
		}
	}
	return nil
}
