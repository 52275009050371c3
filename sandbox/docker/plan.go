// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"encoding/json"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/caisson-run/caisson/guest"
	"github.com/caisson-run/caisson/guest/agent"
	"github.com/caisson-run/caisson/guest/wire"
	"github.com/caisson-run/caisson/internal/linux/mounts"
	"github.com/caisson-run/caisson/sandbox"
)

// plan is a Spec turned into what an engine is asked for.
type plan struct {
	spec      *sandbox.Spec
	ids       identity
	request   createRequest
	root      *rootImage
	binds     []sandbox.Mount // what is bound, in the order of request.HostConfig.Mounts
	inserts   bool            // caisson mounts things itself; see planInserts
	terminals bool            // and terminals; see newTerminals
	// inserted is what it mounts, parents before what lies in them.
	inserted []sandbox.Mount
	layers   map[string]*os.File // of what it mounts copy-on-write, by target; the instance's
	here     bool                // its processes are this machine's; see shared
	looks    bool                // what the container shows is compared; see verify
	asks     bool                // the agent says what it sees: we may not look ourselves
	opened   []*os.File          // closed by close
	empties  map[string]*os.File // see empty
}

// agentDir is where the agent lies in every root that we make.
const agentDir = "/.caisson"

// newPlan decides what a sandbox is made of. Of the host it opens the root's
// own directories and, for masks, makes something empty in the state directory.
func (d *Driver) newPlan(s *sandbox.Spec, mark wire.Mark, f *facts) (_ *plan, err error) {
	if err := checkSpec(s); err != nil {
		return nil, err
	}
	if err := f.checkNetwork(s, os.Geteuid(), d.opts.Runtime); err != nil {
		return nil, err
	}
	if err := s.Limits.Check(f.limits(d.opts.Runtime)); err != nil {
		return nil, err
	}
	ids, err := newIdentity(f, s.User, os.Geteuid(), os.Getegid())
	if err != nil {
		return nil, err
	}
	filter, err := profile()
	if err != nil {
		return nil, &sandbox.Error{Op: "start sandbox", Kind: sandbox.ErrUnsupported, Problem: "there is no system call filter for this machine", Cause: err}
	}
	p := &plan{spec: s, ids: ids, here: f.shared(d.opts.Runtime)}
	if p.here {
		s, p.opened, err = mounts.WithNames(s)
		if err != nil {
			p.close()
			return nil, err
		}
		p.spec = s
	}
	p.inserts = f.inserts(os.Geteuid(), d.opts.Runtime)
	p.terminals = p.inserts
	defer func() {
		if err != nil {
			p.close()
		}
	}()
	u := s.User
	p.request = createRequest{
		Hostname: s.Hostname, User: "0:0",
		AttachStdin: true, AttachStdout: true, AttachStderr: true, OpenStdin: true, StdinOnce: true,
		Env:             []string{"PATH=" + agentDir, agent.MarkVariable + "=" + mark.String()},
		Entrypoint:      append([]string{guest.AgentArgv0, "-name", s.ID, "-stdio", "-filter", "-user", fmt.Sprintf("%d:%d:%s:%s", u.UID, u.GID, u.Name, u.Home)}, ids.arguments()...),
		WorkingDir:      "/",
		Labels:          map[string]string{labelSandbox: s.ID, labelState: mounts.DirectoryMark(filepath.Dir(s.StateDir))},
		NetworkDisabled: p.here, // a third of the engine's time
		HostConfig: hostConfig{
			AutoRemove: true, ReadonlyRootfs: true,
			CapDrop: []string{"ALL"}, CapAdd: ids.capabilities(f.podman),
			CgroupnsMode: "private", NetworkMode: "none",
			// A namespace of its own without /dev/mqueue, which any user inside
			// could fill; /dev/shm is scratch, if it was asked for.
			IpcMode:     "none",
			SecurityOpt: []string{"no-new-privileges:true"},
			MaskedPaths: maskedPaths,
			LogConfig:   logConfig{"none"},
			// Nothing of the host's resolver shows.
			DNS: []string{"127.0.0.1"}, DNSSearch: []string{"."},
			Tmpfs:   map[string]string{},
			Runtime: d.opts.Runtime,
		},
	}
	if p.request.Hostname == "" {
		p.request.Hostname = "sandbox"
	}
	if filter != "" && !f.podman { // Podman takes the name of a file of its own
		p.request.HostConfig.SecurityOpt = append(p.request.HostConfig.SecurityOpt, "seccomp="+filter)
	}
	p.request.HostConfig.limit(&s.Limits, f.limits(d.opts.Runtime))
	if f.info.KernelMemoryTCP && f.cgroups() == "1" && p.request.HostConfig.Memory > 0 {
		p.request.HostConfig.KernelMemoryTCP = socketShare(s.Limits.Memory)
	}
	if f.podman {
		// Its default is more than an engine without CAP_SYS_RESOURCE can give.
		h := &p.request.HostConfig
		h.Ulimits = append(h.Ulimits, ulimit{"nproc", podmanTasks, podmanTasks})
	}
	if err := p.planScratch(f); err != nil {
		return nil, err
	}
	if err := p.planRoot(f); err != nil {
		return nil, err
	}
	if err := p.planMounts(f); err != nil {
		return nil, err
	}
	if len(p.binds) > 0 && d.opts.Runtime != "" {
		return nil, &sandbox.Error{Op: "mount " + p.binds[0].Name, Kind: sandbox.ErrUnsupported,
			Problem: "the runtime " + d.opts.Runtime + " shows files through a kernel of its own, so that it cannot be seen which they are",
			Hint:    "use an image as the root (--image) and no mounts, or --isolation docker"}
	}
	if holdsInside(d.opts.Runtime) && p.request.HostConfig.Memory > 0 {
		p.request.Env = append(p.request.Env, agent.OOMVariable+"=1")
	}
	p.looks = p.here || len(p.binds) > 0
	if p.asks = p.looks && os.Geteuid() != 0; p.asks {
		_, targets := p.shows()
		b, err := json.Marshal(append(targets, ownNetwork))
		if err != nil {
			return nil, err
		}
		p.request.Env = append(p.request.Env, agent.LookVariable+"="+string(b))
	}
	if d.amend != nil {
		d.amend(p)
	}
	return p, nil
}

// checkSpec refuses what contradicts itself, and what this level never has.
func checkSpec(s *sandbox.Spec) error {
	if err := sandbox.CheckID(s.ID); err != nil {
		return err
	}
	if s.User.UID <= 0 || s.User.GID <= 0 {
		return &sandbox.Error{Op: "start sandbox", Kind: sandbox.ErrUnsupported, Problem: "a container's root is too much of the host's to run code as",
			Hint: "run as the user, or as root on a level that has a root of its own: --isolation gvisor"}
	}
	if s.Sudo {
		return &sandbox.Error{Op: "sudo", Kind: sandbox.ErrUnsupported, Problem: "a container's root is too much of the host's to run code as",
			Hint: "do without, or run on a level that has a root of its own: --isolation gvisor"}
	}
	if s.Executables != nil {
		return &sandbox.Error{Op: "executables", Kind: sandbox.ErrUnsupported, Problem: "this level does not look at what is executed",
			Hint: "run without the list, or on a level that holds it (gvisor, process)"}
	}
	if strings.ContainsAny(s.User.Name+s.User.Home, "\x00\n") || strings.Contains(s.User.Name, ":") {
		return sandbox.Errorf(sandbox.ErrInvalid, "start sandbox", "%q is no user's name", s.User.Name)
	}
	var targets []string
	for _, m := range s.Root.Binds {
		targets = append(targets, m.Target)
	}
	for _, m := range s.Mounts {
		targets = append(targets, m.Target)
	}
	for _, sc := range s.Scratch {
		targets = append(targets, sc.Target)
	}
	for _, m := range s.Masks {
		targets = append(targets, m.Target)
	}
	for _, t := range targets {
		if !path.IsAbs(t) || path.Clean(t) != t || t == "/" || strings.ContainsRune(t, 0) || sandbox.Within(t, agentDir) {
			return sandbox.Errorf(sandbox.ErrInvalid, "start sandbox", "nothing can be placed at %q inside", t)
		}
	}
	return nil
}

// planScratch has the engine make the scratch directories. Podman knows neither
// owners nor a number of files for them; the agent gives them to the user then.
func (p *plan) planScratch(f *facts) error {
	var own []string
	scratch, _ := p.spec.Shares()
	for _, sc := range scratch {
		options := []string{"rw", "exec", "nosuid", "nodev", "mode=0755"}
		if sc.Memory {
			options[1] = "noexec"
		}
		if sc.Size > 0 {
			options = append(options, fmt.Sprintf("size=%d", sc.Size))
		}
		if sc.Inodes > 0 && !f.podman {
			options = append(options, fmt.Sprintf("nr_inodes=%d", sc.Inodes))
		}
		switch {
		case sc.Sticky:
			options[4] = "mode=1777"
		case f.podman:
			own = append(own, sc.Target)
		default:
			options = append(options, fmt.Sprintf("uid=%d", p.ids.userUID), fmt.Sprintf("gid=%d", p.ids.userGID))
		}
		if f.podman {
			options = append(options, "notmpcopyup")
		}
		p.request.HostConfig.Tmpfs[sc.Target] = strings.Join(options, ",")
	}
	if len(own) == 0 {
		return nil
	}
	b, err := json.Marshal(own)
	if err == nil {
		p.request.Env = append(p.request.Env, agent.OwnVariable+"="+string(b))
	}
	return err
}

func (p *plan) close() {
	for _, f := range p.opened {
		f.Close()
	}
	p.opened = nil
}
