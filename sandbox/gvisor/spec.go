// SPDX-License-Identifier: Apache-2.0

package gvisor

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/gvisor/protocol"
)

// first is the first process of a sandbox.
type first struct {
	argv []string
	env  []string
	dir  string
	user sandbox.User
	caps []string

	agent    bool // it is the guest agent
	restarts bool // it is the agent, which will start itself again from memory
}

// plan is a Spec turned into what gVisor wants.
type plan struct {
	oci   *ociSpec
	files []sandbox.Mount // what "fd:<n>" in oci means, from protocol.FirstFile on
	ids   identity
	// scratchDirs are below the state directory, unless stagesScratch.
	scratchDirs []string
	hide        []sandbox.Mask
	overlay     string   // gVisor's --overlay2
	live        []string // where what is written goes to the host's files
	erofs       bool     // the root is an image that gVisor's kernel mounts itself
}

// newPlan builds the OCI spec of a sandbox. It touches nothing on the host.
func newPlan(s *sandbox.Spec, f first, ids identity) (*plan, error) {
	p := &plan{ids: ids, overlay: "none", oci: &ociSpec{
		Version:  specs.Version,
		Hostname: s.Hostname,
		Root:     &specs.Root{Path: "fd:" + strconv.Itoa(protocol.FirstFile), Readonly: true},
		Process: &ociProcess{
			User:            ociUser{UID: uint32(f.user.UID), GID: uint32(f.user.GID)},
			Args:            f.argv,
			Env:             f.env,
			Cwd:             f.dir,
			NoNewPrivileges: !s.Sudo, // programs have it from the agent then, unless they may be root
			Capabilities:    capabilities(f.caps),
			Rlimits:         rlimits(&s.Limits),
		},
		Linux: &ociLinux{
			UIDMappings: ids.uids,
			GIDMappings: ids.gids,
			Namespaces: []specs.LinuxNamespace{
				{Type: specs.UserNamespace}, {Type: specs.PIDNamespace}, {Type: specs.MountNamespace},
				{Type: specs.IPCNamespace}, {Type: specs.UTSNamespace}, {Type: specs.NetworkNamespace},
			},
		},
		Annotations: map[string]string{},
	}}
	p.files = []sandbox.Mount{{Source: s.Root.Dir, Name: "the root", Target: "/", Dir: true}}
	if img := s.Root.Image; img != nil && img.EROFS != nil {
		p.rootImage(s, img)
	}
	if err := p.names(s); err != nil {
		return nil, err
	}
	if s.Limits.Memory > 0 {
		p.oci.Annotations[memoryAnnotation] = strconv.FormatInt(s.Limits.Memory, 10)
	}
	if err := p.held(s); err != nil {
		return nil, err
	}
	if err := p.programs(s, f.restarts); err != nil {
		return nil, err
	}
	p.system()
	for _, b := range s.Root.Binds {
		if b.Access != sandbox.ReadOnly {
			return nil, sandbox.Errorf(sandbox.ErrInvalid, "mount "+b.Name, "a part of the root must be read-only")
		}
		p.bind(b, "ro", "nosuid", "nodev")
	}
	if s.Sudo {
		p.oci.Root.Readonly, p.overlay = false, overlay("root", s.StateDir, s.RootSize)
		p.imageLayer(s)
	}
	scratch, cow := s.Shares()
	for i, sc := range scratch {
		p.scratch(s, i, sc)
	}
	p.mounts(s, cow)
	if p.overlay != "none" && strings.ContainsAny(s.StateDir, ",:") { // which end a name in gVisor's flag
		return nil, &sandbox.Error{
			Op: "state directory " + strconv.Quote(s.StateDir), Kind: sandbox.ErrUnsupported,
			Problem: "gvisor keeps no copy-on-write layer below a name with a comma or a colon",
			Hint:    "set CAISSON_STATE to another directory",
		}
	}
	return p, p.masks(s)
}

// system mounts what every Linux program expects; all of it is gVisor's own
// and shows nothing of the host.
func (p *plan) system() {
	p.oci.Mounts = append(p.oci.Mounts,
		ociMount{Destination: "/proc", Type: "proc", Source: "proc", Options: []string{"nosuid", "noexec", "nodev"}},
		ociMount{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "noexec"}},
		ociMount{Destination: "/sys", Type: "sysfs", Source: "sysfs", Options: []string{"nosuid", "noexec", "nodev", "ro"}},
	)
}

// bind shows a host object, handed over open.
func (p *plan) bind(m sandbox.Mount, options ...string) {
	n := protocol.FirstFile + len(p.files)
	p.files = append(p.files, m)
	p.oci.Mounts = append(p.oci.Mounts, ociMount{
		Destination: m.Target, Type: "bind", Source: "fd:" + strconv.Itoa(n), Options: append([]string{"rbind"}, options...),
	})
}

// scratch makes a private writable directory: in memory, or in a file in the
// state directory that gVisor uses as the memory of a tmpfs, so that it does
// not count as the program's memory and its size is held by gVisor's tmpfs.
func (p *plan) scratch(s *sandbox.Spec, i int, sc sandbox.Scratch) {
	// No set-id bit on scratch reaches the host: it is gVisor's own tmpfs.
	flags := []string{"rw", "nodev"}
	if s.Executables != nil {
		flags = append(flags, "noexec")
	}
	if !s.Sudo {
		flags = append(flags, "nosuid")
	}
	options := append(slices.Clone(flags), "mode="+scratchMode(sc))
	if !sc.Sticky {
		options = append(options, fmt.Sprintf("uid=%d", s.User.UID), fmt.Sprintf("gid=%d", s.User.GID))
	}
	if sc.Size > 0 {
		options = append(options, fmt.Sprintf("size=%d", sc.Size))
	}
	if sc.Inodes > 0 {
		options = append(options, fmt.Sprintf("nr_inodes=%d", sc.Inodes))
	}
	if sc.Memory {
		p.oci.Mounts = append(p.oci.Mounts, ociMount{Destination: sc.Target, Type: "tmpfs", Source: "tmpfs", Options: options})
		return
	}
	dir := filepath.Join(s.StateDir, "scratch"+strconv.Itoa(i))
	p.scratchDirs = append(p.scratchDirs, dir)
	p.oci.Mounts = append(p.oci.Mounts, ociMount{Destination: sc.Target, Type: "bind", Source: dir, Options: flags})
	hint := "dev.gvisor.spec.mount.scratch" + strconv.Itoa(i) + "."
	p.oci.Annotations[hint+"source"] = dir
	p.oci.Annotations[hint+"type"] = "tmpfs"
	p.oci.Annotations[hint+"share"] = "container"
	p.oci.Annotations[hint+"options"] = strings.Join(options, ",")
}

// stagesScratch says whether the shim makes the files behind scratch directories, and
// directories for gVisor on its own stage, which it has as root alone. With an overlay
// gVisor makes a file for that too, and then all of them.
func (p *plan) stagesScratch() bool { return euid == 0 && p.overlay == "none" }

func scratchMode(sc sandbox.Scratch) string {
	if sc.Sticky {
		return "1777"
	}
	return "0755"
}

// mounts adds what the operator named. Each copy-on-write mount may take share bytes of
// scratch.
func (p *plan) mounts(s *sandbox.Spec, share int64) {
	cow := false
	for _, m := range s.Mounts {
		options := []string{"nosuid", "nodev"}
		if unexecutable(s.Executables, m) {
			options = append(options, "noexec")
		}
		switch m.Access {
		case sandbox.ReadOnly:
			options = append(options, "ro")
		case sandbox.CopyOnWrite:
			cow = true
		case sandbox.ReadWrite:
			p.live = append(p.live, m.Target)
		}
		p.bind(m, options...)
	}
	if !cow {
		return
	}
	if s.Sudo && s.RootSize > 0 {
		share = min(share, s.RootSize) // there is one size for all of them
	}
	p.overlay = overlay("all", s.StateDir, share)
}

// overlay has gVisor lay a layer of its own over which mounts, in a file in the
// state directory; their own files are opened read-only then. "all" are those that are
// neither read-only nor, as the shim sees to, live. Each layer takes at most size bytes,
// where that is more than 0.
func overlay(which, stateDir string, size int64) string {
	o := which + ":dir=" + stateDir
	if size > 0 {
		o += fmt.Sprintf(",size=%d", size)
	}
	return o
}

// maxMasks bounds how many paths one sandbox may hide: each is a mount.
const maxMasks = 256

// masks hide single paths: the box mounts something empty over them.
func (p *plan) masks(s *sandbox.Spec) error {
	if len(s.Masks) > maxMasks {
		return &sandbox.Error{
			Op: "hide paths", Kind: sandbox.ErrUnsupported,
			Problem: fmt.Sprintf("%d paths are to be hidden, gvisor takes %d", len(s.Masks), maxMasks),
			Hint:    "mount less, or deny whole directories instead of the files in them",
		}
	}
	p.hide = s.Masks
	return nil
}

// rlimits are held by the kernel inside, for every process.
func rlimits(l *sandbox.Limits) []specs.POSIXRlimit {
	var r []specs.POSIXRlimit
	set := func(name string, n int64) {
		if n > 0 {
			r = append(r, specs.POSIXRlimit{Type: name, Soft: uint64(n), Hard: uint64(n)})
		}
	}
	set("RLIMIT_NOFILE", int64(l.OpenFiles))
	set("RLIMIT_NPROC", int64(l.Processes))
	set("RLIMIT_FSIZE", l.FileSize)
	return append(r, specs.POSIXRlimit{Type: "RLIMIT_CORE"})
}

// capabilities gives the first process exactly caps: an explicit empty list,
// because "none said" means something else to gVisor.
func capabilities(caps []string) *specs.LinuxCapabilities {
	none := []string{}
	return &specs.LinuxCapabilities{
		Bounding: append(none, caps...), Effective: append(none, caps...),
		Permitted: append(none, caps...), Inheritable: none, Ambient: none,
	}
}

// memoryAnnotation tells package sentry how much memory to show inside. The
// name is repeated here so that this package need not link gVisor.
const memoryAnnotation = "dev.caisson.memory"

// replaceRoot puts another root in place, with binds that belong to it. They
// come before everything else that is bound.
func (p *plan) replaceRoot(root *os.File, binds []sandbox.Mount) {
	p.files[0].Source = root
	system := len(p.oci.Mounts)
	for _, m := range binds {
		p.bind(m, "ro", "nosuid", "nodev")
	}
	added := p.oci.Mounts[system:]
	p.oci.Mounts = append(slices.Clone(added), p.oci.Mounts[:system]...)
}
