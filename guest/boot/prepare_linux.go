// SPDX-License-Identifier: Apache-2.0

package boot

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	rootDir   = "/root" // where the sandbox's tree is put together
	groupDir  = "/cgroup/sandbox"
	copiesDir = "/copies"
)

// prepare makes all but what needs the sandbox's own namespaces.
func (c *Config) prepare() error {
	tv := syscall.NsecToTimeval(c.Time)
	if err := syscall.Settimeofday(&tv); err != nil {
		return fmt.Errorf("set the clock: %w", err)
	}
	if err := syscall.Sethostname([]byte(c.Hostname)); err != nil {
		return fmt.Errorf("set the name: %w", err)
	}
	// Programs may ask for more than there is, as in a container of a large machine: what
	// they use is what counts.
	if err := os.WriteFile("/proc/sys/vm/overcommit_memory", []byte("1"), 0o644); err != nil {
		return err
	}
	for _, step := range []func() error{c.mountRoot, c.devices, c.mountNames, c.mountAll, c.group, c.connect} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// mountRoot mounts the image and, over it, a layer in which what is missing for the
// mounts is made; it takes what root changes, too, where that is wanted.
func (c *Config) mountRoot() error {
	device, err := block(c.Root)
	if err != nil {
		return err
	}
	for _, dir := range []string{rootDir, "/image", "/layer", copiesDir} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	if err := mount(device, "/image", "erofs", syscall.MS_RDONLY|syscall.MS_NODEV, ""); err != nil {
		return err
	}
	// What was changed is all in the layer, whatever this kernel's own mind is: no name in it
	// stands for files below.
	options := "lowerdir=/image,upperdir=/layer/upper,workdir=/layer/work"
	if c.Layer != nil {
		options += ",redirect_dir=off,metacopy=off"
		c.takes("/", "/layer/upper", map[string]bool{})
		err = c.mountPart(c.Layer, "/layer", syscall.MS_NODEV)
	} else {
		err = mount("layer", "/layer", "tmpfs", syscall.MS_NODEV, "mode=0755,size=1048576")
	}
	if err != nil {
		return err
	}
	for _, dir := range []string{"/layer/upper", "/layer/work"} {
		if err := os.MkdirAll(dir, 0o755); err != nil { // of a disk of before they are there
			return err
		}
	}
	return mount("root", rootDir, "overlay", syscall.MS_NODEV, options)
}

// block is the block device with a serial. A device appears some time after its driver.
func block(serial string) (string, error) {
	place := placeOf(serial, words())
	for until := time.Now().Add(deviceWait); time.Now().Before(until); time.Sleep(devicePause) {
		files, _ := filepath.Glob("/sys/block/*/serial")
		for _, f := range files {
			if b, err := os.ReadFile(f); err == nil && strings.TrimSpace(string(b)) == serial {
				return "/dev/" + filepath.Base(filepath.Dir(f)), nil
			}
		}
		if _, err := os.Stat(place); place != "" && err == nil {
			return place, nil
		}
	}
	return "", fmt.Errorf("the machine has no disk %q", serial)
}

// placeOf is the device of the disk with a serial where the command line says in which
// order they are; empty where it does not.
func placeOf(serial string, commandLine []string) string {
	for _, w := range commandLine {
		list, found := strings.CutPrefix(w, Disks)
		if n := slices.Index(strings.Split(list, ","), serial); found && n >= 0 && n < 26 {
			return "/dev/vd" + string(rune('a'+n))
		}
	}
	return ""
}

// mountAll mounts what the sandbox has besides its root.
func (c *Config) mountAll() error {
	if c.Copies != "" {
		if err := c.mountCopies(); err != nil {
			return err
		}
	}
	for i, m := range c.Mounts {
		at, err := inside(m.Target, m.Dir || !m.Hide && m.Copy == "")
		if err != nil {
			return err
		}
		c.cover(at)
		switch {
		case m.Copy != "":
			err = c.show(&m, at, i)
		case m.Hide && !m.Dir:
			if err := os.WriteFile("/nothing", nil, 0); err != nil {
				return err
			}
			err = mount("/nothing", at, "", syscall.MS_BIND, "")
		case m.Hide:
			err = mount("nothing", at, "tmpfs", syscall.MS_RDONLY|syscall.MS_NOSUID|syscall.MS_NODEV|syscall.MS_NOEXEC, "mode=0,size=4096,nr_inodes=1")
		case m.Part != nil:
			err = c.mountPart(m.Part, at, m.flags())
		default:
			err = m.scratch(at)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (m *Mount) scratch(at string) error {
	options := fmt.Sprintf("mode=%04o,uid=%d,gid=%d", m.Mode, m.UID, m.GID)
	if m.Size > 0 {
		options += ",size=" + strconv.FormatInt(m.Size, 10)
	}
	if m.Inodes > 0 {
		options += ",nr_inodes=" + strconv.FormatInt(m.Inodes, 10)
	}
	return mount("scratch", at, "tmpfs", m.flags(), options)
}

func (m *Mount) flags() uintptr {
	if m.NoExec {
		return hardened | syscall.MS_NOEXEC
	}
	return hardened
}

// inside is where something is mounted, which is made where it is missing. The image
// may have links on the way: they are followed as the sandbox would. A file may take the
// place of a directory that has nothing, as where roots have one to be mounted on.
func inside(target string, dir bool) (string, error) {
	at, err := resolve(target)
	if err != nil {
		return "", err
	}
	switch info, err := os.Lstat(at); {
	case err != nil:
	case info.IsDir() == dir:
		return at, nil
	case dir:
		return "", fmt.Errorf("%s is a file, and a directory is to be mounted on it", target)
	case os.Remove(at) != nil:
		return "", fmt.Errorf("%s is a directory that has something, and a file is to be mounted on it", target)
	}
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		return "", err
	}
	if dir {
		return at, os.Mkdir(at, 0o755)
	}
	return at, os.WriteFile(at, nil, 0o644)
}

// resolve follows links below the root, of which there may be 40 as in the kernel.
func resolve(target string) (string, error) {
	at, rest := "/", strings.Split(strings.Trim(target, "/"), "/")
	for links := 0; len(rest) > 0; {
		name := rest[0]
		rest = rest[1:]
		switch name {
		case "", ".":
			continue
		case "..":
			at = filepath.Dir(at)
			continue
		}
		next := filepath.Join(at, name)
		to, err := os.Readlink(rootDir + next)
		if err != nil {
			at = next
			continue
		}
		if links++; links > 40 {
			return "", fmt.Errorf("%s: %w", target, syscall.ELOOP)
		}
		if strings.HasPrefix(to, "/") {
			at = "/"
		}
		rest = append(strings.Split(to, "/"), rest...)
	}
	return rootDir + at, nil
}

// devices are those that every program expects.
func (c *Config) devices() error {
	dev := rootDir + "/dev"
	for _, dir := range []string{"/proc", "/sys", "/dev"} {
		at, err := inside(dir, true)
		if err != nil {
			return err
		}
		if at != rootDir+dir { // a link of the image's, which a mount would follow out of it
			return fmt.Errorf("%s is no directory of the image", dir)
		}
		c.cover(at)
	}
	if err := mount("dev", dev, "tmpfs", syscall.MS_NOSUID|syscall.MS_NOEXEC, "mode=0755,size=64k"); err != nil {
		return err
	}
	for name, minor := range map[string]int{"null": 3, "zero": 5, "full": 7, "random": 8, "urandom": 9} {
		if err := node(filepath.Join(dev, name), 1, minor); err != nil {
			return err
		}
	}
	if err := node(filepath.Join(dev, "tty"), 5, 0); err != nil {
		return err
	}
	for name, to := range map[string]string{"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2", "ptmx": "pts/ptmx"} {
		if err := os.Symlink(to, filepath.Join(dev, name)); err != nil {
			return err
		}
	}
	for _, name := range []string{"pts", "shm"} {
		if err := os.Mkdir(filepath.Join(dev, name), 0o755); err != nil {
			return err
		}
	}
	return mount("devpts", dev+"/pts", "devpts", syscall.MS_NOSUID|syscall.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=620,gid=5")
}

func node(name string, major, minor int) error {
	if err := syscall.Mknod(name, syscall.S_IFCHR|0o666, major<<8|minor); err != nil {
		return fmt.Errorf("make %s: %w", name, err)
	}
	return os.Chmod(name, 0o666)
}

// group makes the control group of the sandbox: one kernel's limits instead of many
// processes'.
func (c *Config) group() error {
	if err := os.WriteFile("/cgroup/cgroup.subtree_control", []byte("+memory +pids"), 0o644); err != nil {
		return fmt.Errorf("control groups: %w", err)
	}
	if err := os.Mkdir(groupDir, 0o755); err != nil {
		return err
	}
	bounds := map[string]int64{"memory.max": c.Memory, "pids.max": c.Processes}
	for file, n := range bounds {
		if n <= 0 {
			continue
		}
		if err := os.WriteFile(filepath.Join(groupDir, file), []byte(strconv.FormatInt(n, 10)), 0o644); err != nil {
			return fmt.Errorf("limit %s: %w", file, err)
		}
	}
	return nil
}
