// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const cgroupRoot = "/sys/fs/cgroup"

// serveAgent runs in the guest until the host goes away.
func serveAgent() error {
	port, err := openPort()
	if err != nil {
		return err
	}
	systemd := false
	if _, err := os.Stat("/run/systemd/private"); err == nil {
		systemd = true
		// The user's manager, which lingers, is up when its bus is.
		if err := waitFor(userDir+"/bus", 2*time.Minute); err != nil {
			return err
		}
	} else if err := handDown(); err != nil {
		return err
	}
	if err := unpackJob(); err != nil {
		return fmt.Errorf("unpack the job: %w", err)
	}
	if err := mountScratch(); err != nil {
		return err
	}

	var mu sync.Mutex // one line at a time
	enc := json.NewEncoder(port)
	send := func(e Event) {
		mu.Lock()
		defer mu.Unlock()
		// A host that has gone away ends the decoder below too.
		_ = enc.Encode(e)
	}
	send(Event{Hello: true})
	for dec := json.NewDecoder(port); ; {
		var c Command
		if err := dec.Decode(&c); err != nil {
			return fmt.Errorf("read from the host: %w", err)
		}
		go func() {
			code, err := execute(c, systemd, send)
			done := Event{ID: c.ID, Done: true, Code: code}
			if err != nil {
				done.Error = err.Error()
			}
			send(done)
		}()
	}
}

// openPort finds the virtio serial port by its name.
func openPort() (*os.File, error) {
	names, err := filepath.Glob("/sys/class/virtio-ports/*/name")
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if text, err := os.ReadFile(name); err == nil && strings.TrimSpace(string(text)) == portName {
			return os.OpenFile("/dev/"+filepath.Base(filepath.Dir(name)), os.O_RDWR, 0)
		}
	}
	return nil, errors.New("there is no virtio port " + portName)
}

// handDown gives the groups below the root every controller.
func handDown() error {
	controllers, err := os.ReadFile(cgroupRoot + "/cgroup.controllers")
	if err != nil {
		return err
	}
	for _, c := range strings.Fields(string(controllers)) {
		if err := os.WriteFile(cgroupRoot+"/cgroup.subtree_control", []byte("+"+c), 0); err != nil {
			return fmt.Errorf("enable %s: %w", c, err)
		}
	}
	return nil
}

// makeGroup makes a command's group; a delegated one is the user's own in the
// way that cgroup(7) says. undo kills what is still in it and takes it away.
func makeGroup(c Command) (dir string, undo func(), err error) {
	dir = fmt.Sprintf("%s/%s-%d", cgroupRoot, c.As, c.ID)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return "", nil, err
	}
	if c.As == asDelegated {
		for _, name := range []string{".", "cgroup.procs", "cgroup.threads", "cgroup.subtree_control"} {
			if err := os.Chown(filepath.Join(dir, name), userID, userID); err != nil {
				return "", nil, err
			}
		}
	}
	undo = func() {
		// The guest ends soon; what a test leaves, it has to complain of itself.
		_ = os.WriteFile(dir+"/cgroup.kill", []byte("1"), 0)
		for range 100 {
			if exec.Command("find", dir, "-depth", "-type", "d", "-exec", "rmdir", "{}", ";").Run() == nil {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	return dir, undo, nil
}

// unpackJob unpacks the tar that is the raw content of the second disk.
func unpackJob() error {
	if err := (mount{"tmpfs", jobDir, "tmpfs", 0, "mode=755"}).do(); err != nil {
		return err
	}
	disk, err := os.Open("/dev/vdb")
	if err != nil {
		return err
	}
	defer disk.Close()
	for tr := tar.NewReader(disk); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		f, err := os.OpenFile(filepath.Join(jobDir, filepath.Base(h.Name)), os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o755)
		if err != nil {
			return err
		}
		_, err = io.Copy(f, tr)
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
}

func mountScratch() error {
	if err := (mount{"/dev/vdc", "/scratch", "ext4", 0, ""}).do(); err != nil {
		return err
	}
	for _, d := range []struct {
		name string
		uid  int
		mode os.FileMode
	}{{"tmp", 0, 0o777 | os.ModeSticky}, {"root", 0, 0o700}, {"dev", userID, 0o700}} {
		dir := "/scratch/" + d.name
		if err := os.Mkdir(dir, 0o700); err != nil {
			return err
		}
		if err := errors.Join(os.Chown(dir, d.uid, d.uid), os.Chmod(dir, d.mode)); err != nil {
			return err
		}
	}
	return nil
}

// execute runs one command and returns its exit code, 128+n for a signal.
func execute(c Command, systemd bool, send func(Event)) (int, error) {
	argv := c.Argv
	attr := &syscall.SysProcAttr{Setsid: true}
	if c.As != asRoot {
		attr.Credential = &syscall.Credential{Uid: userID, Gid: userID}
	}
	group := false
	switch {
	case c.As == asRoot:
	case (c.As == asDelegated || c.As == asBare) && !systemd:
		group = true
	case c.As == asScope && systemd:
		// The name is one that caisson gives to scopes of its own: a user's
		// manager of this age does not mark a scope as delegated.
		unit := fmt.Sprintf("--unit=caisson-v2guest-%d.scope", c.ID)
		argv = append([]string{"systemd-run", "--user", "--scope", "--quiet", "--property=Delegate=yes", unit, "--"}, argv...)
	case c.As == asSession && systemd:
	default:
		return 0, fmt.Errorf("there is no setting %q under this init", c.As)
	}
	if group {
		path, undo, err := makeGroup(c)
		if err != nil {
			return 0, err
		}
		defer undo()
		dir, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return 0, err
		}
		defer unix.Close(dir)
		attr.UseCgroupFD, attr.CgroupFD = true, dir
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(environment(c.As), c.Env...)
	cmd.Dir = c.Dir
	if cmd.Dir == "" {
		cmd.Dir = jobDir
	}
	cmd.SysProcAttr = attr
	cmd.Stdout = eventWriter(func(b []byte) { send(Event{ID: c.ID, Out: b}) })
	cmd.Stderr = eventWriter(func(b []byte) { send(Event{ID: c.ID, Err: b}) })
	// A daemon that keeps the pipes open must not hold the answer back.
	cmd.WaitDelay = 10 * time.Second
	err := cmd.Run()
	if state := cmd.ProcessState; state != nil {
		if ws := state.Sys().(syscall.WaitStatus); ws.Signaled() {
			return 128 + int(ws.Signal()), nil
		}
		return state.ExitCode(), nil
	}
	return 0, err
}

// eventWriter sends what a command writes, as it writes it.
type eventWriter func([]byte)

func (w eventWriter) Write(b []byte) (int, error) {
	w(b)
	return len(b), nil
}
