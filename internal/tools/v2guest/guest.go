// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// guestMain is the program inside: first the initial ramdisk's /init, then, in
// the real root, either the tiny init or a service of systemd.
func guestMain() {
	var err error
	switch {
	case filepath.Base(os.Args[0]) != agentName:
		err = initrdMain()
	case os.Getpid() == 1:
		err = tinyInit()
	default:
		err = serveAgent()
	}
	fmt.Fprintln(os.Stderr, "v2guest:", filepath.Base(os.Args[0]), err) // on the console, which the host keeps
	if os.Getpid() == 1 {
		unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART) // with -no-reboot this ends QEMU
	}
	os.Exit(1)
}

// initrdMain loads modules, lays an overlay in memory over the image, and hands
// over to the init that the kernel's command line names.
func initrdMain() error {
	for _, m := range []mount{
		{"devtmpfs", "/dev", "devtmpfs", 0, ""},
		{"proc", "/proc", "proc", 0, ""},
		{"sysfs", "/sys", "sysfs", 0, ""},
	} {
		if err := m.do(); err != nil {
			return err
		}
	}
	if err := loadModules(); err != nil {
		return err
	}
	// Everybody's, as udev's rules have it, and there is no udev here.
	if err := os.Chmod("/dev/net/tun", 0o666); err != nil {
		return err
	}
	if err := waitFor("/dev/vda", time.Minute); err != nil {
		return err
	}
	for _, m := range []mount{
		{"/dev/vda", "/lower", "erofs", unix.MS_RDONLY, ""},
		{"tmpfs", "/rw", "tmpfs", 0, ""},
		{"overlay", "/root", "overlay", 0, "lowerdir=/lower,upperdir=/rw/upper,workdir=/rw/work"},
		{"tmpfs", "/root/run", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, "mode=755"},
	} {
		if err := m.do(); err != nil {
			return err
		}
	}
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		return err
	}
	if err := os.WriteFile("/root"+agentPath, self, 0o755); err != nil {
		return err
	}
	// What an installer writes; names are looked up there, and nowhere else here.
	if err := os.WriteFile("/root/etc/hosts", []byte("127.0.0.1\tlocalhost\n::1\tlocalhost\n"), 0o644); err != nil {
		return err
	}
	cmdline, err := os.ReadFile("/proc/cmdline")
	if err != nil {
		return err
	}
	init := agentPath
	if strings.Contains(string(cmdline), "v2.init=systemd") {
		init = "/lib/systemd/systemd"
		if err := writeUnits("/root/run/systemd/system"); err != nil {
			return err
		}
	}
	for _, m := range []string{"dev", "proc", "sys"} {
		if err := unix.Mount("/"+m, "/root/"+m, "", unix.MS_MOVE, ""); err != nil {
			return fmt.Errorf("move /%s: %w", m, err)
		}
	}
	if err := os.Chdir("/root"); err != nil {
		return err
	}
	if err := unix.Mount(".", "/", "", unix.MS_MOVE, ""); err != nil {
		return fmt.Errorf("move the root: %w", err)
	}
	if err := unix.Chroot("."); err != nil {
		return err
	}
	return unix.Exec(init, []string{init}, []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"})
}

type mount struct {
	source, target, kind string
	flags                uintptr
	data                 string
}

func (m mount) do() error {
	dirs := []string{m.target}
	if m.kind == "overlay" {
		dirs = append(dirs, "/rw/upper", "/rw/work")
	}
	for _, dir := range dirs {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	if err := unix.Mount(m.source, m.target, m.kind, m.flags, m.data); err != nil {
		return fmt.Errorf("mount %s on %s: %w", m.kind, m.target, err)
	}
	return nil
}

func loadModules() error {
	order, err := os.ReadFile("/mod/order")
	if err != nil {
		return err
	}
	for _, name := range strings.Fields(string(order)) {
		code, err := os.ReadFile("/mod/" + name)
		if err != nil {
			return err
		}
		if err := unix.InitModule(code, ""); err != nil && err != unix.EEXIST {
			return fmt.Errorf("load %s: %w", name, err)
		}
	}
	return nil
}

// waitFor waits for a file that the kernel or systemd makes when it is ready.
func waitFor(path string, limit time.Duration) error {
	for end := time.Now().Add(limit); ; time.Sleep(5 * time.Millisecond) {
		if _, err := os.Stat(path); err == nil {
			return nil
		} else if time.Now().After(end) {
			return err
		}
	}
}

// tinyInit is process 1 where there is no systemd: it mounts what systemd would,
// starts the agent, and reaps.
func tinyInit() error {
	for _, m := range []mount{
		{"devpts", "/dev/pts", "devpts", 0, "gid=5,mode=620,ptmxmode=666"},
		{"tmpfs", "/dev/shm", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, "mode=1777"},
		{"tmpfs", "/tmp", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, "mode=1777"},
		{"cgroup2", "/sys/fs/cgroup", "cgroup2", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC, "nsdelegate"},
	} {
		if err := m.do(); err != nil {
			return err
		}
	}
	if err := unix.Sethostname([]byte("v2guest")); err != nil {
		return err
	}
	if err := loopbackUp(); err != nil {
		return err
	}
	agent := exec.Command(agentPath)
	agent.Env = environment(asRoot)
	agent.Stdout, agent.Stderr = os.Stdout, os.Stderr
	if err := agent.Start(); err != nil {
		return err
	}
	for {
		pid, err := unix.Wait4(-1, nil, 0, nil)
		if err == unix.EINTR {
			continue
		}
		if err != nil || pid == agent.Process.Pid {
			return fmt.Errorf("the agent has ended (wait: %w)", err)
		}
	}
}

// loopbackUp lets what is tested talk to itself; nothing else brings lo up here.
func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	lo.SetUint16(unix.IFF_UP)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo); err != nil {
		return fmt.Errorf("bring up lo: %w", err)
	}
	return nil
}
