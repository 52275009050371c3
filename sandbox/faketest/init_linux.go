// SPDX-License-Identifier: Apache-2.0

package faketest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/caisson-run/caisson/guest"
	"github.com/caisson-run/caisson/guest/agent"
	"github.com/caisson-run/caisson/sandbox"
)

// initMark in the environment makes a test binary the first process of a
// fake sandbox.
const initMark = "CAISSON_FAKETEST_INIT"

// Init turns this process into the first process of a sandbox if that is what
// it was started for; it then does not return.
func Init() {
	if os.Args[0] == guest.AgentArgv0 {
		agent.Main()
	}
	if os.Getenv(initMark) == "" {
		return
	}
	var w initMessage
	answer := os.NewFile(4, "answer")
	say := func(e ending) {
		json.NewEncoder(answer).Encode(e)
		os.Exit(0)
	}
	if err := json.NewDecoder(os.NewFile(3, "world")).Decode(&w); err != nil {
		say(ending{Fault: err.Error()})
	}
	root, err := w.build()
	if err != nil {
		say(ending{Fault: err.Error()})
	}
	if w.Agent {
		say(w.becomeAgent(root))
	}
	say(w.run(root))
}

const base = "/run/caisson-faketest" // in the private mount namespace only

// build lays out the tree and returns where it is.
func (w *initMessage) build() (string, error) {
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return "", err
	}
	if err := syscall.Mount("none", "/mnt", "tmpfs", 0, "mode=755"); err != nil {
		return "", err
	}
	root := "/mnt/root"
	os.Mkdir(root, 0o755)
	if w.RootFD >= 0 {
		if err := copyTree(fdPath(w.RootFD), root); err != nil {
			return "", err
		}
	}
	for _, d := range []string{"proc", "dev", "tmp"} {
		os.MkdirAll(filepath.Join(root, d), 0o755)
	}
	if err := syscall.Mount("proc", root+"/proc", "proc", 0, ""); err != nil {
		return "", err
	}
	if err := syscall.Mount("/dev", root+"/dev", "", syscall.MS_BIND|syscall.MS_REC, ""); err != nil {
		return "", err
	}
	for i, m := range w.Spec.Root.Binds {
		if err := bind(w.MountFD[i], root, m); err != nil {
			return "", err
		}
	}
	for _, s := range w.Spec.Scratch {
		if err := w.scratch(root, s); err != nil {
			return "", err
		}
	}
	for i, m := range w.Spec.Mounts {
		if err := bind(w.MountFD[len(w.Spec.Root.Binds)+i], root, m); err != nil {
			return "", err
		}
		if m.Dir && m.Access == sandbox.ReadWrite {
			if err := w.give(filepath.Join(root, m.Target)); err != nil {
				return "", wrap("mount "+m.Target, err)
			}
		}
	}
	for _, m := range w.Spec.Masks {
		if err := mask(root, m); err != nil {
			return "", err
		}
	}
	// Only the tmpfs that carries the tree: mounts below keep their own mode.
	return root, syscall.Mount("", "/mnt", "", syscall.MS_REMOUNT|syscall.MS_RDONLY|syscall.MS_BIND, "")
}

func (w *initMessage) scratch(root string, s sandbox.Scratch) error {
	at := filepath.Join(root, s.Target)
	os.MkdirAll(at, 0o755)
	opts := "mode=755,uid=" + itoa(w.Spec.User.UID) + ",gid=" + itoa(w.Spec.User.GID)
	if s.Sticky {
		opts = "mode=1777"
	}
	size := s.Size
	if size == 0 {
		size = w.Spec.Limits.Disk
	}
	opts += ",size=" + strconv.FormatInt(max(size, 4096), 10)
	if s.Inodes > 0 {
		opts += ",nr_inodes=" + strconv.FormatInt(s.Inodes, 10)
	}
	return wrap("scratch "+s.Target, syscall.Mount("none", at, "tmpfs", 0, opts))
}

func bind(fd int, root string, m sandbox.Mount) error {
	at := filepath.Join(root, m.Target)
	if m.Dir {
		os.MkdirAll(at, 0o755)
	} else if os.MkdirAll(filepath.Dir(at), 0o755); true {
		f, err := os.OpenFile(at, os.O_CREATE, 0o644)
		if err == nil {
			f.Close()
		}
	}
	if m.Access == sandbox.CopyOnWrite {
		return cow(fd, at)
	}
	if err := syscall.Mount(fdPath(fd), at, "", syscall.MS_BIND|syscall.MS_REC, ""); err != nil {
		return wrap("mount "+m.Target, err)
	}
	if m.Access == sandbox.ReadOnly {
		return wrap("mount "+m.Target, syscall.Mount("", at, "", syscall.MS_REMOUNT|syscall.MS_BIND|syscall.MS_RDONLY, ""))
	}
	return nil
}

// give gives a directory that is its owner's alone to the user inside, where levels
// translate owners: a volume, which no other user looks into.
func (w *initMessage) give(at string) error {
	info, err := os.Stat(at)
	if err != nil || info.Mode().Perm()&0o077 != 0 {
		return err
	}
	return filepath.WalkDir(at, func(p string, _ fs.DirEntry, err error) error {
		return errors.Join(err, os.Lchown(p, w.Spec.User.UID, w.Spec.User.GID))
	})
}

var layers int

// cow is an overlay whose upper layer lies on the private tmpfs.
func cow(fd int, at string) error {
	layers++
	dir := "/mnt/cow" + itoa(layers)
	for _, d := range []string{dir, dir + "/upper", dir + "/work", dir + "/lower"} {
		if err := os.Mkdir(d, 0o777); err != nil {
			return err
		}
		os.Chmod(d, 0o777)
	}
	if err := syscall.Mount(fdPath(fd), dir+"/lower", "", syscall.MS_BIND, ""); err != nil {
		return wrap("cow", err)
	}
	opts := fmt.Sprintf("lowerdir=%s/lower,upperdir=%s/upper,workdir=%s/work", dir, dir, dir)
	return wrap("cow", syscall.Mount("overlay", at, "overlay", 0, opts))
}

func mask(root string, m sandbox.Mask) error {
	at := filepath.Join(root, m.Target)
	if m.Dir {
		return wrap("mask "+m.Target, syscall.Mount("none", at, "tmpfs", syscall.MS_RDONLY, "mode=0,size=4096"))
	}
	empty := "/mnt/empty"
	if err := os.WriteFile(empty, nil, 0); err != nil {
		return err
	}
	return wrap("mask "+m.Target, syscall.Mount(empty, at, "", syscall.MS_BIND, ""))
}

// run starts the program, passes signals on, reaps, and reports its end.
func (w *initMessage) run(root string) ending {
	os.MkdirAll(base, 0o755)
	if name := w.Spec.Hostname; name != "" {
		syscall.Sethostname([]byte(name))
	}
	// The kernel counts processes by user, and all sandboxes of this level share
	// one: the default limit would be that of all tests that run at once.
	processes := int64(w.Spec.Limits.Processes)
	if !w.Spec.Limits.Explicit[sandbox.LimitProcesses] {
		processes = 0
	}
	for _, l := range []struct {
		which int
		value int64
	}{{syscall.RLIMIT_NOFILE, int64(w.Spec.Limits.OpenFiles)}, {syscall.RLIMIT_FSIZE, w.Spec.Limits.FileSize}, {6 /* NPROC */, processes}} {
		if l.value > 0 {
			syscall.Setrlimit(l.which, &syscall.Rlimit{Cur: uint64(l.value), Max: uint64(l.value)})
		}
	}
	if err := syscall.Chroot(root); err != nil {
		return ending{Fault: "chroot: " + err.Error()}
	}
	path, code, problem := w.lookup()
	if code != 0 {
		fmt.Fprintln(os.Stderr, problem)
		return ending{Exit: code}
	}
	cmd := &exec.Cmd{Path: path, Args: w.Argv, Env: w.Env, Dir: w.Dir, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Setsid: true, Setctty: w.TTY,
		Credential: &syscall.Credential{Uid: uint32(w.Spec.User.UID), Gid: uint32(w.Spec.User.GID), NoSetGroups: false},
	}
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2)
	if err := cmd.Start(); err != nil {
		fmt.Fprintf(os.Stderr, "%s: cannot execute: %v\n", w.Argv[0], err)
		return ending{Exit: 126}
	}
	go func() {
		for s := range signals {
			syscall.Kill(-cmd.Process.Pid, s.(syscall.Signal))
		}
	}()
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		if err == syscall.EINTR || pid != cmd.Process.Pid {
			if err != nil && err != syscall.EINTR {
				return ending{Fault: "wait: " + err.Error()}
			}
			continue
		}
		if status.Signaled() {
			return ending{Signal: status.Signal()}
		}
		return ending{Exit: status.ExitStatus()}
	}
}

// lookup finds the program as a shell does: 127 not found, 126 not executable.
func (w *initMessage) lookup() (path string, code int, problem string) {
	name := w.Argv[0]
	dirs := []string{""}
	if !strings.Contains(name, "/") {
		for _, kv := range w.Env {
			if p, ok := strings.CutPrefix(kv, "PATH="); ok {
				dirs = filepath.SplitList(p)
			}
		}
	}
	for _, d := range dirs {
		p := filepath.Join(d, name)
		if !filepath.IsAbs(p) {
			p = filepath.Join(w.Dir, p)
		}
		info, err := os.Stat(p)
		if err != nil || info.IsDir() && d != "" {
			continue
		}
		if info.IsDir() || info.Mode()&0o111 == 0 {
			return "", 126, name + ": permission denied"
		}
		return p, 0, ""
	}
	return "", 127, name + ": command not found"
}

// copyTree copies a small tree; large roots are for real levels.
func copyTree(from, to string) error {
	n := 0
	from += "/"
	return filepath.WalkDir(from, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if n++; n > 20000 {
			return fmt.Errorf("the root has more than 20000 entries: too large for the fake level")
		}
		at := filepath.Join(to, strings.TrimPrefix(p, from))
		info, err := d.Info()
		if err != nil {
			return err
		}
		switch {
		case d.IsDir():
			return os.MkdirAll(at, info.Mode().Perm())
		case d.Type()&fs.ModeSymlink != 0:
			link, err := os.Readlink(p)
			if err != nil {
				return err
			}
			return os.Symlink(link, at)
		case d.Type().IsRegular():
			return copyFile(p, at, info.Mode().Perm())
		}
		return nil
	})
}

func copyFile(from, to string, mode fs.FileMode) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	defer out.Close()
	_, err = io.Copy(out, in)
	return err
}

func wrap(op string, err error) error {
	if err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	return nil
}

// fdPath is where an open file was: the kernel binds no handle that came from
// another mount namespace. A real level must not go by name; a fake one may.
func fdPath(fd int) string {
	p, err := os.Readlink("/proc/self/fd/" + itoa(fd))
	if err != nil {
		return "/proc/self/fd/" + itoa(fd)
	}
	return p
}

func itoa(n int) string { return strconv.Itoa(n) }
