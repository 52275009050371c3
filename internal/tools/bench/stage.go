// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// nobody (65534) is the unprivileged user of the rows that root measures for
// others.
const nobody = 65534

// stage is where runs take place: copies of both binaries that every user can
// execute, and state directories, all in one temporary directory.
type stage struct {
	o     *options
	dir   string
	users []user

	looked func(printing bool) // flooded has looked at the memory; for tests
}

// user is who runs a row.
type user struct {
	name     string
	uid      int
	state    string // caisson's state directory
	runscDir string // runsc's
}

func newStage(o *options) (_ *stage, err error) {
	s := &stage{o: o}
	if s.dir, err = os.MkdirTemp("", "caisson-bench-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if err := os.Chmod(s.dir, 0o711); err != nil {
		return nil, err
	}
	programs := map[string]string{"caisson": o.caisson}
	if o.soak == 0 {
		programs["runsc"] = o.runsc
	}
	for name, from := range programs {
		if err := install(from, s.path(name)); err != nil {
			return nil, err
		}
	}
	s.users = []user{{name: "root", uid: os.Geteuid()}}
	if s.users[0].uid != 0 {
		s.users[0].name = fmt.Sprint("uid ", s.users[0].uid)
	} else {
		s.users = append(s.users, user{name: fmt.Sprint("uid ", nobody), uid: nobody})
	}
	for i := range s.users {
		u := &s.users[i]
		home := s.path(fmt.Sprint("home-", u.uid))
		u.state, u.runscDir = filepath.Join(home, "caisson"), filepath.Join(home, "runsc")
		for _, d := range []string{home, u.state, u.runscDir} {
			if err := os.Mkdir(d, 0o700); err != nil {
				return nil, err
			}
			if err := os.Chown(d, u.uid, -1); err != nil {
				return nil, err
			}
		}
	}
	return s, nil
}

func (s *stage) path(name string) string { return filepath.Join(s.dir, name) }

func (s *stage) close() error { return os.RemoveAll(s.dir) }

// install copies a program to where any user can execute it, and has the kernel drop
// it, so that the runs that warm up read it from the disk as they do after a reboot: a
// page at a time.
func install(from, to string) error {
	if err := duplicate(from, to); err != nil {
		return err
	}
	f, err := os.Open(to)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED), f.Close())
}

// duplicate copies a program, as cp does. What was just written lies in the page cache
// in larger pieces than what was read by executing it, and starts faster.
func duplicate(from, to string) error {
	src, err := os.Open(from)
	if err != nil {
		return fmt.Errorf("%w (make build makes it)", err)
	}
	defer src.Close()
	dst, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	piece := make([]byte, 128<<10)
	_, err = io.CopyBuffer(struct{ io.Writer }{dst}, struct{ io.Reader }{src}, piece)
	return errors.Join(err, dst.Close())
}

// caisson is a command line of ours, as u.
func (s *stage) caisson(ctx context.Context, u user, args ...string) *exec.Cmd {
	return s.command(ctx, u, "caisson", args)
}

// caissonRun runs argv in a sandbox with every default.
func (s *stage) caissonRun(ctx context.Context, u user, argv ...string) *exec.Cmd {
	return s.caisson(ctx, u, append([]string{"run", "--"}, argv...)...)
}

// runscDo is runsc's nearest equal: one program on a view of the host's files,
// no network. It takes two flags beyond those of the goal: a state directory of
// its own, and without root --rootless, without which it refuses to start.
func (s *stage) runscDo(ctx context.Context, u user, argv ...string) *exec.Cmd {
	args := []string{"--root=" + u.runscDir, "--network=none"}
	if u.uid != 0 {
		args = append(args, "--rootless")
	}
	return s.command(ctx, u, "runsc", append(append(args, "do", "--quiet"), argv...))
}

func (s *stage) command(ctx context.Context, u user, program string, args []string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, s.path(program), args...)
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin", "LANG=C.UTF-8", "HOME=" + filepath.Dir(u.state), "CAISSON_STATE=" + u.state}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C reaches it through Cancel alone
	if u.uid != os.Geteuid() {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(u.uid), Gid: uint32(u.uid)}
	}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

// failure says how a run failed, with the first line of what it wrote to
// stderr.
func failure(cmd *exec.Cmd, err error, stderr string) error {
	line, _, _ := strings.Cut(strings.TrimSpace(stderr), "\n")
	return fmt.Errorf("%s: %w: %s", filepath.Base(cmd.Path), err, line)
}
