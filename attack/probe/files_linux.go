// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"encoding/binary"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// helpers are files of the kernel that name a program which it runs as root.
func (p *prober) helpers() {
	p.open("/sys/kernel/uevent_helper", unix.O_WRONLY)
	p.open("/proc/sys/kernel/modprobe", unix.O_WRONLY)
	p.groupFiles("release_agent", 8)
	p.groupFiles("notify_on_release", 8)
}

// groupFiles opens files of control groups for writing.
func (p *prober) groupFiles(name string, maximum int) {
	n, depth := 0, strings.Count("/sys/fs/cgroup", "/")
	_ = filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil || n >= maximum:
			return fs.SkipDir
		case d.IsDir() && strings.Count(path, "/") > depth+4:
			return fs.SkipDir
		case d.Name() == name:
			n++
			p.open(path, unix.O_WRONLY)
		}
		return nil
	})
	if n == 0 {
		p.open("/sys/fs/cgroup/"+name, unix.O_WRONLY)
	}
}

// groupMount mounts a hierarchy of control groups in namespaces of its own
// (CVE-2022-0492), one that the host has already: no new one comes into being.
func (p *prober) groupMount() {
	dir := "/tmp/" + p.Nonce + "-F04"
	_ = os.MkdirAll(dir, 0o700)
	if p.Groups != "" {
		p.try("mount control groups", unix.Mount(p.Nonce, dir, "cgroup", 0, p.Groups))
	}
	p.try("mount control groups v2", unix.Mount(p.Nonce, dir, "cgroup2", 0, ""))
	p.open(dir+"/release_agent", unix.O_WRONLY)
}

// devices makes and opens devices. It reads none.
func (p *prober) devices() {
	for i, d := range append(slices.Clone(p.Disks), [2]int{1, 1}) { // the last is /dev/mem
		kind := uint32(unix.S_IFBLK)
		if i == len(p.Disks) {
			kind = unix.S_IFCHR
		}
		for _, dir := range []string{"/tmp", "/dev/shm", "/dev", AtWorkspace} {
			path := fmt.Sprintf("%s/%s-%d", dir, p.Nonce, i)
			err := unix.Mknod(path, kind|0o600, int(unix.Mkdev(uint32(d[0]), uint32(d[1]))))
			p.try(fmt.Sprintf("mknod %s %d:%d", path, d[0], d[1]), err)
			if err == nil {
				p.open(path, unix.O_RDONLY)
				_ = unix.Unlink(path)
			}
		}
	}
	for _, name := range []string{"sda", "vda", "nvme0n1", "xvda", "mem", "port", "kmsg", "kvm", "fuse", "loop-control", "mapper/control", "net/tun", "vhost-net", "uinput", "input/event0", "snapshot"} {
		p.open("/dev/"+name, unix.O_RDONLY)
	}
}

// byHandle opens a file outside by its handle (the Shocker exploit).
func (p *prober) byHandle() {
	if len(p.Handle) == 0 {
		p.say("the host's file system has no handles")
		return
	}
	for _, place := range []string{"/", AtWorkspace, AtData, "/tmp"} {
		mount, err := unix.Open(place, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			p.try("open "+place, err)
			continue
		}
		fd, err := unix.OpenByHandleAt(mount, unix.NewFileHandle(p.HandleType, p.Handle), unix.O_RDONLY|unix.O_CLOEXEC)
		unix.Close(mount)
		p.try("open_by_handle_at on "+place, err)
		if err == nil {
			p.held = append(p.held, fd)
			p.found("read it", contents(fd))
		}
	}
}

// hardLink changes a read-only file through a second name of it.
func (p *prober) hardLink() {
	file := AtData + "/F09"
	p.write(file)
	for _, dir := range []string{AtWorkspace, "/tmp", AtData} {
		name := dir + "/" + p.Nonce + "-F09"
		p.try("link "+file+" to "+name, unix.Link(file, name))
		p.try("link it by its descriptor", linkDescriptor(file, name+"-fd"))
		p.write(name)
		p.write(name + "-fd")
	}
	p.try("make a file there", os.WriteFile(AtData+"/"+p.Nonce, nil, 0o600))
	p.try("cut it off", unix.Truncate(file, 0))
	p.try("chmod it", unix.Chmod(file, 0o777))
}

func linkDescriptor(file, name string) error {
	fd, err := unix.Open(file, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), unix.AT_FDCWD, name, unix.AT_SYMLINK_FOLLOW)
}

// prefixes asks for the neighbour of what is shown (CVE-2025-53110).
func (p *prober) prefixes() {
	for _, path := range []string{
		AtData + "-evil/F12", AtData + "/../data-evil/F12", AtData + "//..//data-evil/F12", AtWorkspace + "/../data-evil/F12",
		p.Outside + "/data-evil/F12", AtData + "/up/F12",
	} {
		p.read(path)
	}
	fd, err := unix.Open(AtData, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err == nil {
		up, err := unix.Openat(fd, "../data-evil/F12", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		p.try("openat from "+AtData, err)
		if err == nil {
			p.found("read it", contents(up))
		}
	}
}

// spellings asks for a hidden file by other names.
func (p *prober) spellings() {
	w := AtWorkspace
	for _, path := range []string{
		w + "/.env", w + "/./.env", w + "//.env", w + "/sub/../.env", w + "/.ENV", w + "/.Env", w + "/.env/", w + "/.env.",
		"/proc/self/root" + w + "/.env", "/proc/thread-self/root" + w + "/.env", w + "/to-env", w + "/.e\u200dnv", AtData + "/../" + w + "/.env",
	} {
		p.read(path)
	}
	if os.Chdir(w) == nil {
		p.read(".env")
		p.read("/proc/self/cwd/.env")
	}
	p.try("link it", unix.Link(w+"/.env", w+"/"+p.Nonce+"-F13"))
	p.read(w + "/" + p.Nonce + "-F13")
}

// renames moves what leads to hidden files.
func (p *prober) renames() {
	w := AtWorkspace
	p.try("move the directory above", unix.Rename(w+"/sub", w+"/moved"))
	p.read(w + "/moved/private/F14")
	p.try("move it back", unix.Rename(w+"/moved", w+"/sub"))
	p.try("move the hidden directory", unix.Rename(w+"/sub/private", w+"/shown"))
	p.read(w + "/shown/F14")
	p.try("exchange it", unix.Renameat2(unix.AT_FDCWD, w+"/sub/private", unix.AT_FDCWD, w+"/empty", unix.RENAME_EXCHANGE))
	p.read(w + "/empty/F14")
	p.try("remove what hides it", unix.Rmdir(w+"/sub/private"))
	p.read(w + "/sub/private/F14")
}

// NewFiles are what some program of the host runs when it finds it in a
// directory that a person opens.
func NewFiles() []string {
	return []string{".envrc", ".vscode/tasks.json", ".claude/settings.json", ".idea/workspace.xml", ".mcp.json", ".git/hooks/pre-commit", ".git/config.worktree", ".git/commondir"}
}

// plantsNew makes them (CVE-2026-25725).
func (p *prober) plantsNew() {
	for _, name := range NewFiles() {
		path := filepath.Join(AtWorkspace, name)
		_ = os.MkdirAll(filepath.Dir(path), 0o755)
		p.plant(path)
	}
}

func (p *prober) plant(path string) {
	err := os.WriteFile(path, []byte(p.Nonce), 0o755)
	if err != nil && os.WriteFile(AtWorkspace+"/"+p.Nonce, []byte(p.Nonce), 0o755) == nil {
		err = os.Rename(AtWorkspace+"/"+p.Nonce, path)
	}
	p.try("make "+path, err)
}

// plantsGit changes what git runs on the host.
func (p *prober) plantsGit() {
	git := AtWorkspace + "/.git"
	p.plant(git + "/config")
	p.plant(git + "/hooks/post-checkout")
	p.try("move .git away", unix.Rename(git, AtWorkspace+"/git"))
	_ = os.MkdirAll(git, 0o755)
	p.plant(git + "/config")
}

// RunnableFiles are of the workspace and must not be what code wrote: below a
// directory that it moves away, what a repository's config names, a rebase's list.
func RunnableFiles() []string {
	return []string{"web/.vscode/tasks.json", "web/.husky/pre-commit", "tools/hooks/pre-commit", ".git/rebase-merge/git-rebase-todo", "web/sub/.git/config"}
}

// ToldFiles can be made in a workspace, and have to be told when they were.
func ToldFiles() []string { return []string{"new/.roo/mcp.json", "lib/.git/config"} }

// plantsRunnable spoils a repository, puts other directories in the place of some,
// and makes a repository whose config names a program.
func (p *prober) plantsRunnable() {
	p.try("remove .git/HEAD", os.Remove(AtWorkspace+"/.git/HEAD"))
	for _, name := range []string{".git/objects", ".git/refs", ".git", "web/sub", "web", "tools"} {
		path := filepath.Join(AtWorkspace, name)
		p.try("move "+path+" away", unix.Rename(path, path+"2"))
	}
	for _, name := range RunnableFiles() {
		path := filepath.Join(AtWorkspace, name)
		_ = os.MkdirAll(filepath.Dir(path), 0o755)
		p.plant(path)
	}
	for _, name := range []string{"objects", "refs"} {
		_ = os.MkdirAll(AtWorkspace+"/lib/.git/"+name, 0o755)
	}
	_ = os.WriteFile(AtWorkspace+"/lib/.git/HEAD", []byte("ref: refs/heads/main\n"), 0o644)
	for _, name := range ToldFiles() {
		path := filepath.Join(AtWorkspace, name)
		_ = os.MkdirAll(filepath.Dir(path), 0o755)
		p.try("make "+path, os.WriteFile(path, []byte("[core]\n\tfsmonitor = "+p.Nonce+"\n"), 0o644))
	}
}

// homes looks for what lies in home folders and accounts.
func (p *prober) homes() {
	for _, path := range []string{"/etc/shadow", "/etc/gshadow", "/etc/sudoers"} {
		p.open(path, unix.O_RDONLY)
	}
	for _, path := range []string{"/root", "/root/.ssh", "/root/.aws", "/home", "/var/lib/caisson", "/var/run/docker.sock"} {
		p.open(path, unix.O_PATH)
	}
	p.read(p.Outside + "/F17")
}

// KernelFiles tell of the host's kernel and of what runs on it.
func KernelFiles() []string {
	return []string{
		"/proc/kcore", "/proc/kmsg", "/proc/keys", "/proc/key-users", "/proc/timer_list", "/proc/sched_debug", "/proc/latency_stats",
		"/proc/kallsyms", "/proc/slabinfo", "/proc/acpi", "/proc/scsi", "/proc/interrupts", "/proc/asound", "/proc/vmallocinfo", "/proc/iomem", "/proc/config.gz",
		"/sys/kernel/notes", "/sys/kernel/debug", "/sys/kernel/security", "/sys/kernel/tracing", "/sys/kernel/slab", "/sys/firmware", "/sys/module",
		"/sys/devices/virtual/powercap", "/sys/class/dmi", "/dev/kmsg", "/dev/cpu/0/msr",
	}
}

func (p *prober) kernelFiles() {
	for _, path := range KernelFiles() {
		p.open(path, unix.O_RDONLY)
	}
}

// walks leaves the root through other processes' and through descriptors.
func (p *prober) walks() {
	bases := []string{"/proc/1/root", "/proc/1/cwd", "/proc/self/root", fmt.Sprintf("/proc/%d/root", p.Victim), fmt.Sprintf("/proc/%d/cwd", p.Victim)}
	for fd := range 12 {
		bases = append(bases, fmt.Sprintf("/proc/self/fd/%d", fd), fmt.Sprintf("/proc/1/fd/%d", fd))
	}
	for _, base := range bases {
		p.read(base + p.Outside + "/F19")
		p.read(base + strings.Repeat("/..", 12) + p.Outside + "/F19")
	}
	p.read(AtWorkspace + "/link")
	p.read(fmt.Sprintf("/proc/%d/fd/3", p.Victim))
}

// overlay mounts in namespaces of its own, and sets attributes that mean
// something to the host.
func (p *prober) overlay() {
	dir := "/tmp/" + p.Nonce + "-F22"
	for _, d := range []string{"", "/upper", "/work", "/merged"} {
		_ = os.MkdirAll(dir+d, 0o700)
	}
	opts := "lowerdir=" + AtWorkspace + ",upperdir=" + dir + "/upper,workdir=" + dir + "/work,userxattr"
	p.try("mount an overlay", unix.Mount(p.Nonce, dir+"/merged", "overlay", 0, opts))
	p.read(dir + "/merged/.env.F22")
	p.try("mount a bind", unix.Mount(AtWorkspace, dir+"/merged", "", unix.MS_BIND, ""))
	p.read(dir + "/merged/.env.F22")
	p.open("/dev/fuse", unix.O_RDWR)
	// All capabilities, effective (struct vfs_cap_data, revision 2).
	caps := binary.LittleEndian.AppendUint32(nil, 0x02000001)
	for range 4 {
		caps = binary.LittleEndian.AppendUint32(caps, 0xffffffff)
	}
	file := AtWorkspace + "/F22"
	p.try("give a file capabilities", unix.Setxattr(file, "security.capability", caps, 0))
	p.try("give a file a set-user-id bit", unix.Chmod(file, 0o4755))
	p.try("set trusted.overlay", unix.Setxattr(file, "trusted.overlay.opaque", []byte("y"), 0))
}

// remount undoes what is mounted.
func (p *prober) remount() {
	w := AtWorkspace
	p.try("remount "+AtData+" writable", unix.Mount("", AtData, "", unix.MS_REMOUNT|unix.MS_BIND, ""))
	p.write(AtData + "/F21")
	p.try("remount / writable", unix.Mount("", "/", "", unix.MS_REMOUNT|unix.MS_BIND, ""))
	p.try("unmount what hides a file", unix.Unmount(w+"/.env.F21", unix.MNT_DETACH))
	p.read(w + "/.env.F21")
	p.try("unmount "+AtData, unix.Unmount(AtData, unix.MNT_DETACH))
	_ = os.Mkdir("/tmp/"+p.Nonce, 0o700)
	p.try("move a mount", unix.Mount(w, "/tmp/"+p.Nonce, "", unix.MS_MOVE, ""))
	p.try("mount a tmpfs", unix.Mount(p.Nonce, "/tmp/"+p.Nonce, "tmpfs", 0, ""))
	p.try("pivot_root", unix.PivotRoot(w, w))
	fd, _, errno := unix.Syscall(unix.SYS_OPEN_TREE, ^uintptr(99), uintptr(unsafe.Pointer(&[]byte("/\x00")[0])), 1) // AT_FDCWD, OPEN_TREE_CLONE
	p.hold("open_tree /", fd, errno)
}
