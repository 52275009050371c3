// SPDX-License-Identifier: Apache-2.0

package boot

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/caisson-run/caisson/guest/agent"
)

// configVariable hands the Config to the process that becomes the agent.
const configVariable = "CAISSON_BOOT"

// serve starts the agent, says so, and waits until it has ended, reaping whatever is
// given to it meanwhile. Orders come over control.
func (c *Config) serve(port, control *os.File) error {
	// What is left to do. A variable has no room for more (MAX_ARG_STRLEN).
	b, err := json.Marshal(&Config{Layer: c.Layer, Argv: c.Argv, Env: c.Env})
	if err != nil {
		return err
	}
	group, err := os.Open(groupDir)
	if err != nil {
		return err
	}
	defer group.Close()
	self, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return err
	}
	pid, err := syscall.ForkExec(self, []string{inner}, &syscall.ProcAttr{
		Dir: "/", Env: []string{configVariable + "=" + string(b)},
		Files: []uintptr{port.Fd(), 2, 2},
		Sys: &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWIPC | cloneNewCgroup,
			UseCgroupFD: true, CgroupFD: int(group.Fd()),
		},
	})
	if err != nil {
		err = fmt.Errorf("start the agent: %w", err)
		_ = answer(port, Answer{Error: err.Error()})
		return err
	}
	go c.obey(control)
	for {
		var ws syscall.WaitStatus
		ended, err := syscall.Wait4(-1, &ws, 0, nil)
		if err == syscall.EINTR {
			continue
		}
		if err != nil || ended == pid {
			tellOfMemory()
			if ws.Exited() && ws.ExitStatus() == 0 {
				return nil
			}
			return fmt.Errorf("the agent ended: %#x, %v", ws, err)
		}
	}
}

// tellOfMemory says what the agent would have: the memory limit may have killed the agent
// itself, as scratch is memory and belongs to no process.
func tellOfMemory() {
	b, err := os.ReadFile(filepath.Join(groupDir, "memory.events"))
	if err != nil {
		return
	}
	for line := range strings.Lines(string(b)) {
		if n, ok := strings.CutPrefix(line, "oom_kill "); ok && strings.TrimSpace(n) != "0" {
			fmt.Fprintln(os.Stderr, "\n"+agent.OOMLine)
		}
	}
}

// enter becomes the agent, in namespaces of its own. It returns an error alone, which it
// has answered with.
func enter() error {
	err := func() error {
		c := new(Config)
		if err := json.Unmarshal([]byte(os.Getenv(configVariable)), c); err != nil {
			return err
		}
		os.Clearenv()
		if err := c.enterRoot(); err != nil {
			return err
		}
		// The program lies outside of the sandbox: the kernel knows it all the same.
		self, err := syscall.Open("/proc/self/exe", syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		port := os.NewFile(0, "port")
		if err := answer(port, Answer{}); err != nil {
			return err
		}
		return syscall.Exec(fmt.Sprintf("/proc/self/fd/%d", self), c.Argv, c.Env)
	}()
	_ = answer(os.NewFile(0, "port"), Answer{Error: err.Error()})
	return err
}

// enterRoot mounts what shows the namespaces, and makes the sandbox's tree the root.
func (c *Config) enterRoot() error {
	const hard = syscall.MS_NOSUID | syscall.MS_NODEV | syscall.MS_NOEXEC
	if err := mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return err
	}
	if err := mount("proc", rootDir+"/proc", "proc", hard, ""); err != nil {
		return err
	}
	for _, name := range []string{"sys", "irq", "bus", "fs", "sysrq-trigger"} { // the machine's own, not the sandbox's
		at := filepath.Join(rootDir, "proc", name)
		if _, err := os.Stat(at); err != nil {
			continue
		}
		if err := mount(at, at, "", syscall.MS_BIND, ""); err != nil {
			return err
		}
		if err := mount("", at, "", syscall.MS_BIND|syscall.MS_REMOUNT|syscall.MS_RDONLY|hard, ""); err != nil {
			return err
		}
	}
	if err := mount("sysfs", rootDir+"/sys", "sysfs", hard|syscall.MS_RDONLY, ""); err != nil {
		return err
	}
	if err := mount("cgroup2", rootDir+"/sys/fs/cgroup", "cgroup2", hard|syscall.MS_RDONLY, ""); err != nil {
		return err
	}
	if c.Layer == nil {
		if err := mount("", rootDir, "", syscall.MS_REMOUNT|syscall.MS_RDONLY|syscall.MS_NODEV, ""); err != nil {
			return err
		}
	}
	if err := os.Chdir(rootDir); err != nil {
		return err
	}
	if err := mount(".", "/", "", syscall.MS_MOVE, ""); err != nil {
		return err
	}
	if err := syscall.Chroot("."); err != nil {
		return err
	}
	return os.Chdir("/")
}

const cloneNewCgroup = 0x02000000
