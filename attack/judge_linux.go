// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/attack/probe"
	"github.com/caisson-run/caisson/sandbox"
)

// judge is one case's evidence: what the host sees of it, if anything, makes it
// red, and so does a canary that came out. On a kernel that is the host's, a
// system call that worked does too.
func (e *evidence) judge(id string) (Verdict, string) {
	tried := e.out.Of(id)
	for _, t := range tried {
		if strings.Contains(t.Found, e.token(id)) {
			return Breach, fmt.Sprintf("%s: the canary came out", t.What)
		}
	}
	how := judges()[id]
	if why := how.see(e); why != "" {
		return Breach, why
	}
	if how.believed && e.shared {
		for _, t := range tried {
			if t.Got {
				why := t.What + ": the host's kernel let it"
				if t.Error != "" {
					why = fmt.Sprintf("%s: the host's kernel answered it (%s)", t.What, t.Error)
				}
				return Breach, why
			}
		}
	}
	blind := e.blind()
	switch {
	case len(tried) == 0:
		return Unclear, "the probe did not try"
	case how.needs != nil && how.needs(e) != "":
		return NotApplicable, how.needs(e)
	case blind != nil && os.Geteuid() != 0 && errors.Is(blind.hidden, fs.ErrPermission):
		return NotApplicable, "it was tried, but what came of it shows to root only: an engine's processes are not the caller's; run caisson attack as root"
	case blind != nil:
		return Unclear, fmt.Sprintf("the host could not look at %s: %v", blind, blind.hidden)
	case len(e.insiders()) == 0:
		return Unclear, "the host sees no process of the sandbox"
	}
	for _, p := range e.insiders() {
		if p.hidden != nil && id == "K19" {
			return Pass, fmt.Sprintf("%s shows its namespaces and descriptors to root only", p)
		}
	}
	return Pass, ""
}

// judging is how a case is judged.
type judging struct {
	see      func(*evidence) string // what the host sees; empty is nothing
	believed bool                   // what the probe has got it has got, where the kernel is the host's
	needs    func(*evidence) string // why the case shows nothing here
}

// judges are those of the live sandbox.
func judges() map[string]judging {
	nothing := func(*evidence) string { return "" }
	held := func(what func(descriptor) bool) judging { return judging{see: seeDescriptor(what), believed: true} }
	link := func(names ...string) judging {
		return held(func(d descriptor) bool { return slices.Contains(names, d.link) })
	}
	socket := func(protocols ...string) judging {
		return held(func(d descriptor) bool { return slices.Contains(protocols, d.protocol) })
	}
	return map[string]judging{
		"F01": held(func(d descriptor) bool { return d.write && strings.Contains(d.link, "/proc/sys/") }),
		"F02": held(func(d descriptor) bool { return d.write && strings.HasSuffix(d.link, "/sysrq-trigger") }),
		"F03": held(func(d descriptor) bool { return d.write && helper(d.link) }),
		"F04": {see: func(e *evidence) string { return e.mounted("cgroup", "cgroup2") }, believed: true},
		"F05": {see: seeDescriptor(strangeDevice), believed: true},
		"F06": {see: seePlant("F06"), believed: true, needs: func(e *evidence) string {
			if len(e.config.Handle) == 0 {
				return "the file system of the host's temporary directory has no handles"
			}
			return ""
		}},
		"F09": {see: seeChanged("F09")},
		"F12": {see: nothing},
		"F13": {see: nothing},
		"F14": {see: nothing},
		"F15": {see: seeChanged("F15")},
		"F16": {see: seeChanged("F16")},
		"F17": {see: func(e *evidence) string {
			if why := seePlant("F17")(e); why != "" {
				return why
			}
			return seeDescriptor(account)(e)
		}},
		"F18": {see: seeDescriptor(kernelFile)},
		"F19": {see: seePlant("F19")},
		"F21": {see: func(e *evidence) string {
			if why := seeChanged("F21")(e); why != "" {
				return why
			}
			return e.remounted()
		}},
		"F26": {see: (*evidence).runnable},
		"F22": {see: func(e *evidence) string {
			if why := e.mounted("overlay", "fuse"); why != "" {
				return why
			}
			return e.marked(filepath.Join(e.workspace, "F22"))
		}},
		"F25": {see: func(e *evidence) string { return e.waited }},
		"K01": socket("ALG", "AF_ALG"),
		"K02": held(func(d descriptor) bool { return strings.Contains(d.link, probe.MemfdName("i386", e32)) }),
		"K03": held(func(d descriptor) bool { return strings.Contains(d.link, probe.MemfdName("x32", e32)) }),
		"K04": link("anon_inode:[io_uring]"),
		"K05": {see: nothing, believed: true},
		"K06": socket("AF_VSOCK"),
		"K07": socket("PACKET", "RAW", "RAWv6", "RXRPC", "KEY", "XDP"),
		"K08": link("anon_inode:bpf-map", "anon_inode:[perf_event]", "anon_inode:[userfaultfd]", "anon_inode:[fscontext]", "anon_inode:[fanotify]", "anon_inode:fanotify"),
		"K09": {see: func(e *evidence) string {
			if e.keyFrom() {
				return "a key that was added inside lies in a keyring of the caller"
			}
			return ""
		}, believed: true},
		"K10": {see: (*evidence).newUserNamespace, believed: true},
		"K11": {see: func(e *evidence) string {
			if e.traced != "" && e.traced != "0" {
				return "process " + e.traced + " traces a process of the host"
			}
			return ""
		}},
		"K12": {see: (*evidence).otherPersonality, believed: true},
		"K13": {see: (*evidence).privileged, believed: true},
		"K14": {see: (*evidence).becameRoot, needs: func(e *evidence) string {
			if _, err := os.Stat(filepath.Join(e.data, "K14")); err != nil {
				return "only root can leave a set-user-id program of root for it, where there is a program id"
			}
			return ""
		}},
		"K15": {see: (*evidence).terminals, believed: true},
		"K16": {see: func(e *evidence) string {
			if e.hit.Load() {
				return "a process of the host got the signal"
			}
			return ""
		}},
		"K17": {see: seePlant("K17")},
		"K19": {see: (*evidence).unlike},
		"K20": {see: (*evidence).unfiltered, believed: true},
		"K21": {see: (*evidence).pooled, believed: true},
		"K22": {see: (*evidence).siblings, believed: true},
		"S01": {see: nothing},
		"S02": {see: (*evidence).environments},
		"S03": {see: seePlant("S03")},
		"S04": {see: func(e *evidence) string {
			if e.records != "" {
				return "its value lies in " + e.records
			}
			return ""
		}},
		"S08": {see: (*evidence).connected},
		"N01": {see: seeTouched("N01")},
		"N03": {see: seeTouched("N03")},
		"N04": {see: seeTouched("N04")},
		"L07": {see: (*evidence).leftGroup},
	}
}

// e32 stands for any nonce: only this suite makes memfds of that name.
const e32 = "caisson-attack-"

// inside says whether a process belongs to the sandbox, and not to those of
// caisson that keep it.
func (e *evidence) inside(p *process) bool {
	for _, ns := range []string{"pid", "user"} {
		if own, _ := os.Readlink("/proc/self/ns/" + ns); p.namespaces[ns] != own {
			return true
		}
	}
	return p.argvHas(e.nonce)
}

// insiders are the processes inside, at the end of the attempts.
func (e *evidence) insiders() []*process {
	var all []*process
	for _, p := range e.ready {
		if e.inside(p) {
			all = append(all, p)
		}
	}
	return all
}

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

// seePlant finds a planted file, by its inode, among everybody's descriptors.
func seePlant(id string) func(*evidence) string {
	return func(e *evidence) string {
		var st unix.Stat_t
		if unix.Stat(filepath.Join(e.plants.out, id), &st) != nil {
			return ""
		}
		for _, p := range e.ready {
			for _, d := range p.files {
				if d.dev == uint64(st.Dev) && d.ino == st.Ino {
					return fmt.Sprintf("%s holds the canary %s", p, d.link)
				}
			}
		}
		return ""
	}
}

func seeChanged(id string) func(*evidence) string {
	return func(e *evidence) string {
		if e.changed[id] {
			return "the canary on the host was changed"
		}
		return ""
	}
}

func seeTouched(id string) func(*evidence) string {
	return func(e *evidence) string {
		if _, ok := e.touched.Load(id); ok {
			return "the host's service was reached"
		}
		return ""
	}
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

// mounted finds a mount that carries the nonce.
func (e *evidence) mounted(types ...string) string {
	for _, p := range e.insiders() {
		for _, line := range p.mounts {
			_, after, _ := strings.Cut(line, " - ")
			fields := strings.Fields(after)
			if len(fields) >= 2 && fields[1] == e.nonce && slices.Contains(types, fields[0]) {
				return fmt.Sprintf("%s has mounted a %s", p, fields[0])
			}
		}
	}
	return ""
}

// remounted compares the mounts of each process with those before.
func (e *evidence) remounted() string {
	for _, p := range e.insiders() {
		for _, q := range e.start {
			if p.same(q) && p.namespaces["mnt"] == q.namespaces["mnt"] && !slices.Equal(p.mounts, q.mounts) {
				return fmt.Sprintf("the mounts of %s have changed", p)
			}
		}
	}
	return ""
}

// marked says what a file in the workspace must not have on the host.
func (e *evidence) marked(file string) string {
	info, err := os.Stat(file)
	if err == nil && info.Mode()&(fs.ModeSetuid|fs.ModeSetgid) != 0 {
		return "a file in the workspace got a set-user-id bit on the host"
	}
	if n, err := unix.Getxattr(file, "security.capability", nil); err == nil && n > 0 {
		return "a file in the workspace got capabilities on the host"
	}
	return ""
}

func (e *evidence) newUserNamespace() string {
	before := map[string]bool{}
	for _, p := range e.start {
		before[p.namespaces["user"]] = true
	}
	for _, p := range e.insiders() {
		if !before[p.namespaces["user"]] {
			return fmt.Sprintf("%s is in a user namespace of its own making", p)
		}
	}
	return ""
}

// leased says that an open of a file of the host waits now. It does not wait itself.
func leased(name string) string {
	fd, err := unix.Open(name, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err == nil {
		unix.Close(fd)
	}
	if errors.Is(err, unix.EWOULDBLOCK) {
		return "a process that opens the file on the host waits for the sandbox"
	}
	return ""
}

// pooled finds files of huge pages, and processes with more filters than before.
func (e *evidence) pooled() string {
	if why := seeDescriptor(func(d descriptor) bool { return d.system == unix.HUGETLBFS_MAGIC })(e); why != "" {
		return why
	}
	filters := func(p *process) int {
		n, _ := strconv.Atoi(p.status["Seccomp_filters"]) // Linux 5.9
		return n
	}
	for _, p := range e.insiders() {
		for _, q := range e.start {
			if p.argvHas(e.nonce) && q.argvHas(e.nonce) && e.shared && filters(p) > filters(q) {
				return fmt.Sprintf("%s has %d filters instead of %d", p, filters(p), filters(q))
			}
		}
	}
	return ""
}

// siblings finds processes that were made inside, and whose parent is outside.
func (e *evidence) siblings() string {
	inside := map[int]bool{}
	for _, p := range e.insiders() {
		inside[p.pid] = true
	}
	for _, p := range e.insiders() {
		was := slices.ContainsFunc(e.start, p.same)
		if !was && !inside[p.parent] && p.argvHas(e.nonce) {
			return fmt.Sprintf("%s was made inside, and is a child of process %d, outside", p, p.parent)
		}
	}
	return ""
}

func (e *evidence) otherPersonality() string {
	for _, p := range e.insiders() {
		const noRandomize = 0x0040000
		var is int
		if _, err := fmt.Sscanf(p.personality, "%x", &is); err == nil && is&noRandomize != 0 && p.argvHas(e.nonce) {
			return fmt.Sprintf("%s runs without address randomization", p)
		}
	}
	return ""
}

func (e *evidence) becameRoot() string {
	for _, t := range e.out.Of("K14") {
		if t.Got {
			return "the program ran as root"
		}
	}
	return ""
}

// environments looks for the canary in those of all processes, the keepers'
// included.
func (e *evidence) environments() string {
	for _, p := range e.ready {
		if bytes.Contains(p.environ, []byte(e.token("S02"))) {
			return fmt.Sprintf("%s has caisson's environment", p)
		}
	}
	return ""
}

func (e *evidence) connected() string {
	for _, t := range e.out.Of("S08") {
		if t.Got && strings.HasPrefix(t.What, "connect") {
			return t.What + ": it answered"
		}
	}
	return ""
}

// holds names the first file below dir with text in it. A state directory has images, too:
// what it finds is no word where ctx has ended.
func holds(ctx context.Context, dir, text string) (found string) {
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return fs.SkipAll
		}
		if err != nil || found != "" || !d.Type().IsRegular() {
			return nil //nolint:nilerr // what cannot be read by its owner holds nothing for others
		}
		f, err := os.Open(path)
		if err != nil {
			return nil
		}
		defer f.Close()
		if contains(ctx, f, text) {
			found = filepath.Base(path)
		}
		return nil
	})
	return found
}

func contains(ctx context.Context, r io.Reader, text string) bool {
	block, kept := make([]byte, 1<<20), []byte(nil)
	for ctx.Err() == nil {
		n, err := r.Read(block)
		kept = append(kept, block[:n]...)
		if bytes.Contains(kept, []byte(text)) {
			return true
		}
		if err != nil {
			return false
		}
		kept = append([]byte(nil), kept[max(0, len(kept)-len(text)):]...)
	}
	return false
}

// runnable says what a program of the host would run of what came into the workspace
// without being told.
func (e *evidence) runnable() string {
	if why := seeChanged("F26")(e); why != "" {
		return why
	}
	if _, err := os.Stat(filepath.Join(e.workspace, ".git/HEAD")); err != nil {
		return "the workspace's repository is spoilt: git looks for another around it"
	}
	for _, name := range probe.ToldFiles() {
		path := filepath.Join(e.workspace, name)
		if _, err := os.Stat(path); err != nil {
			continue
		}
		if !slices.ContainsFunc(e.told, func(f sandbox.Finding) bool {
			return f.Action == sandbox.ActionInspect && strings.HasPrefix(path, filepath.Clean(f.Text)+"/")
		}) {
			return name + " came into being, and is no finding"
		}
	}
	return ""
}
