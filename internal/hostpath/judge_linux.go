// SPDX-License-Identifier: Apache-2.0

package hostpath

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/sandbox"
)

// kernelTypes are filesystems that are windows into the kernel, wherever they
// are mounted.
var kernelTypes = []string{
	"proc", "sysfs", "devtmpfs", "devpts", "cgroup", "cgroup2", "debugfs", "tracefs", "securityfs", "bpf", "efivarfs",
	"configfs", "binfmt_misc", "mqueue", "pstore", "fusectl", "selinuxfs", "nsfs", "rpc_pipefs",
}

// How a source meets a forbidden path, the most telling first.
const (
	isIt = iota
	liesIn
	shows
)

// verdict is one reason to refuse.
type verdict struct {
	how int
	f   forbidden
}

// problem is the reason as a sentence.
func (v verdict) problem() string {
	switch v.how {
	case isIt:
		return fmt.Sprintf("%s is refused, because %s", v.f.path, v.f.why)
	case liesIn:
		return fmt.Sprintf("it lies in %s, which is refused, because %s", v.f.path, v.f.why)
	default:
		return fmt.Sprintf("it contains %s, which is refused, because %s", v.f.path, v.f.why)
	}
}

// judge refuses a source that is forbidden, lies in what is, or shows it.
func judge(src *Source, o Options) error {
	mounts, err := readMounts()
	if err != nil {
		return unjudged(src, o, err)
	}
	obj, err := lookup(int(src.File.Fd()), mounts)
	if errors.Is(err, errMoved) || errors.Is(err, unix.ENOENT) {
		return changed(src.Name, o)
	}
	if err != nil {
		return unjudged(src, o, err)
	}
	j := &judgement{obj: obj, below: mounts.below(src.Real), mounts: mounts, opts: o}
	if !obj.dir {
		j.below = nil
	}
	j.filesystems()
	for _, f := range o.forbidden() {
		if err := j.against(f); err != nil {
			return unjudged(src, o, err)
		}
	}
	return j.sentence(o.op(src.Name))
}

// unjudged is the error for what we could not look at: then it is not shown.
func unjudged(src *Source, o Options, err error) error {
	return &sandbox.Error{Op: o.op(src.Name), Kind: sandbox.ErrUnavailable, Problem: "it cannot be told whether it is safe to show", Cause: err,
		Hint: "copy what is needed to another directory"}
}

// judgement collects what speaks against one object.
type judgement struct {
	obj    *object
	below  []mountEntry // mounts that the object shows
	mounts mountTable
	opts   Options
	found  []verdict
}

// add notes a reason, unless the operator's word or reading only settles it.
func (j *judgement) add(how int, f forbidden) {
	if !f.never && j.opts.AllowDangerous || f.write && !j.opts.Write {
		return
	}
	j.found = append(j.found, verdict{how, f})
}

// filesystems refuses windows into the kernel that are mounted elsewhere than
// in /proc and /sys.
func (j *judgement) filesystems() {
	window := func(at, fstype string) forbidden {
		return forbidden{path: at, why: "it is a " + fstype + " filesystem, a window into the host's kernel", rule: ruleKernel, never: true}
	}
	for _, m := range j.mounts {
		if slices.Contains(kernelTypes, m.fstype) && m.root.dev == j.obj.at.dev {
			j.add(liesIn, window(m.point, m.fstype))
			break
		}
	}
	for _, m := range j.below {
		if slices.Contains(kernelTypes, m.fstype) {
			j.add(shows, window(m.point, m.fstype))
		}
	}
}

// against compares the object with one forbidden path. What does not exist,
// or what we may not reach, is not what we hold in our hand.
func (j *judgement) against(f forbidden) error {
	fd, err := openPath(unix.AT_FDCWD, f.path, 0)
	if err != nil {
		return nil
	}
	defer unix.Close(fd)
	l, err := lookup(fd, j.mounts)
	if errors.Is(err, errMoved) || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EACCES) {
		return nil // it was moved away just now: it is not this path any more
	}
	if err != nil {
		return err
	}
	switch {
	case j.obj.id == l.id || j.obj.at.dev != "" && j.obj.at == l.at:
		j.add(isIt, f)
	case f.reach == tree && l.contains(j.obj):
		j.add(liesIn, f)
	case j.obj.contains(l):
		j.add(shows, f)
	case f.path == "/home" && j.obj.dir && len(j.obj.above) > 0 && j.obj.above[0] == l.id:
		j.add(isIt, forbidden{path: "a folder in /home", why: "it is a home folder", rule: ruleHome})
	case f.reach == tree && !j.obj.dir && j.obj.links > 1 && l.dir && l.id.dev == j.obj.id.dev && !f.never && !f.write:
		in, err := linkedIn(f.path, j.obj.id)
		if err != nil {
			return err
		}
		if in {
			j.add(liesIn, f)
		}
	}
	for _, m := range j.below {
		if l.at.within(m.root) || f.reach == tree && m.root.within(l.at) {
			f := f
			f.path += " (mounted on " + m.point + ")"
			j.add(shows, f)
		}
	}
	return nil
}

// maxLinkSearch bounds the search for another name of a file.
const maxLinkSearch = 50_000

// linkedIn says whether the file has a name in dir as well: a hard link to a
// key is the key.
func linkedIn(dir string, file id) (bool, error) {
	seen, found := 0, false
	root, err := os.OpenRoot(dir)
	if err != nil {
		return false, nil // not reachable for us, so it was not linked by us
	}
	defer root.Close()
	var walk func(at string) error
	walk = func(at string) error {
		d, err := root.Open(at)
		if err != nil {
			return nil
		}
		entries, err := d.ReadDir(-1)
		d.Close()
		if err != nil {
			return nil
		}
		for _, e := range entries {
			if seen++; seen > maxLinkSearch {
				return fmt.Errorf("the file has several names, and %s holds more than %d files among which one of them may be", dir, maxLinkSearch)
			}
			if e.IsDir() {
				if err := walk(path.Join(at, e.Name())); err != nil || found {
					return err
				}
				continue
			}
			info, err := e.Info()
			if err != nil || !info.Mode().IsRegular() {
				continue
			}
			if st, ok := info.Sys().(*syscall.Stat_t); ok && (id{st.Dev, st.Ino}) == file {
				found = true
				return nil
			}
		}
		return nil
	}
	err = walk(".")
	return found, err
}

// sentence makes one error of all reasons: the most telling one, without the
// hint at the override when one of the others rules that out.
func (j *judgement) sentence(op string) error {
	if len(j.found) == 0 {
		return nil
	}
	best := slices.MinFunc(j.found, func(a, b verdict) int { return a.how - b.how })
	best.f.never = slices.ContainsFunc(j.found, func(v verdict) bool { return v.f.never })
	return refuse(op, best.problem(), best.f)
}

// forbidden is everything that is refused for this operator on this host.
func (o Options) forbidden() []forbidden {
	all := slices.Clone(systemPaths)
	if o.StateDir != "" {
		all = append(all, forbidden{o.StateDir, "it holds caisson's own state and records", ruleState, tree, true, false})
	}
	for _, v := range socketVariables {
		if p := socketPath(o.getenv(v.name)); p != "" {
			all = append(all, forbidden{p, v.why, ruleSocket, itself, true, false})
		}
	}
	homes := o.homes()
	for _, h := range homes {
		all = append(all, forbidden{h, "it is a home folder", ruleHome, itself, false, false})
	}
	for _, f := range slices.Concat(socketPaths, secretPaths) {
		rest, ok := strings.CutPrefix(f.path, "~/")
		if !ok {
			all = append(all, f)
			continue
		}
		for _, h := range homes {
			f.path = path.Join(h, rest)
			all = append(all, f)
		}
	}
	return all
}

// socketPath is the path in an address like "unix:path=/run/bus,guid=1",
// "unix:///run/docker.sock" or "/tmp/tmux-0/default,1,0".
func socketPath(address string) string {
	address = strings.TrimPrefix(address, "unix://")
	address = strings.TrimPrefix(address, "unix:path=")
	address, _, _ = strings.Cut(address, ",")
	if !strings.HasPrefix(address, "/") {
		return ""
	}
	return path.Clean(address)
}

// homes are the home folders of people and of root that exist.
func (o Options) homes() []string {
	homes := []string{"/root", o.Home, o.getenv("HOME")}
	if f, err := os.Open(o.passwd); err == nil {
		defer f.Close()
		for s := bufio.NewScanner(f); s.Scan(); {
			// name:password:uid:gid:comment:home:shell
			fields := strings.Split(s.Text(), ":")
			if len(fields) < 7 {
				continue
			}
			if uid, err := strconv.Atoi(fields[2]); err == nil && (uid == 0 || uid >= 1000 && uid != 65534) {
				homes = append(homes, fields[5])
			}
		}
	}
	homes = slices.DeleteFunc(homes, func(h string) bool {
		if !strings.HasPrefix(h, "/") {
			return true
		}
		var st unix.Stat_t
		return unix.Stat(h, &st) != nil
	})
	for i := range homes {
		homes[i] = path.Clean(homes[i])
	}
	slices.Sort(homes)
	return slices.Compact(homes)
}
