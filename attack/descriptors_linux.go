// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/attack/probe"
)

func seeDescriptor(what func(descriptor) bool) func(*evidence) string {
	return func(e *evidence) string {
		for _, p := range e.insiders() {
			var held []string
			for _, d := range p.files {
				if what(d) && !e.born(p, d) {
					held = append(held, d.name())
				}
			}
			if len(held) > 0 {
				return fmt.Sprintf("%s holds %s", p, strings.Join(held, ", "))
			}
		}
		return ""
	}
}

// born says that p held d before the attempts: it is the level's own.
func (e *evidence) born(p *process, d descriptor) bool {
	for _, q := range e.start {
		if p.same(q) {
			return slices.ContainsFunc(q.files, func(f descriptor) bool { return f.number == d.number && f.link == d.link && f.ino == d.ino })
		}
	}
	return false
}

func (d descriptor) name() string {
	if d.protocol != "" {
		return d.protocol + " " + d.link
	}
	return d.link
}

func helper(link string) bool {
	for _, name := range []string{"/uevent_helper", "/release_agent", "/notify_on_release", "/kernel/modprobe"} {
		if strings.HasSuffix(link, name) {
			return true
		}
	}
	return false
}

// strangeDevice is every device but those that hold no data.
func strangeDevice(d descriptor) bool {
	switch d.mode & unix.S_IFMT {
	case unix.S_IFBLK:
		return true
	case unix.S_IFCHR:
		switch unix.Major(d.rdev) {
		case 1: // null, zero, full, random, urandom; 1:1 is mem, 1:11 is kmsg
			return !slices.Contains([]uint32{3, 5, 7, 8, 9}, unix.Minor(d.rdev))
		case 5, 136, 137, 138, 139, 140, 141, 142, 143: // tty, ptmx; K15 judges terminals
			return false
		}
		return true
	}
	return false
}

// account is a file of the host, by its inode, that tells of accounts or homes.
func account(d descriptor) bool {
	home, _ := os.UserHomeDir()
	for _, name := range []string{"/etc/shadow", "/etc/gshadow", "/etc/sudoers", "/root", "/root/.ssh", "/root/.aws", "/home", home, "/var/lib/caisson", "/var/run/docker.sock"} {
		var st unix.Stat_t
		if name != "" && d.ino != 0 && unix.Stat(name, &st) == nil && d.dev == uint64(st.Dev) && d.ino == st.Ino {
			return true
		}
	}
	return false
}

// kernelFile is one that is the kernel's own, not something mounted over it.
func kernelFile(d descriptor) bool {
	// The link begins where the file system of that process does.
	if !slices.ContainsFunc(probe.KernelFiles(), func(name string) bool { return strings.HasSuffix(d.link, name) }) {
		return false
	}
	switch d.system {
	case unix.PROC_SUPER_MAGIC, unix.SYSFS_MAGIC, unix.DEBUGFS_MAGIC, unix.TRACEFS_MAGIC, unix.SECURITYFS_MAGIC:
		return true
	}
	return d.mode&unix.S_IFMT == unix.S_IFCHR && unix.Major(d.rdev) != 1 || strangeDevice(d)
}
