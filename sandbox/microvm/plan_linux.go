// SPDX-License-Identifier: Apache-2.0

package microvm

import (
	"cmp"
	"fmt"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/caisson-run/caisson/guest"
	"github.com/caisson-run/caisson/guest/agent"
	"github.com/caisson-run/caisson/guest/boot"
	"github.com/caisson-run/caisson/guest/wire"
	"github.com/caisson-run/caisson/internal/linux/cgroup"
	"github.com/caisson-run/caisson/sandbox"
)

// check refuses what contradicts itself, and what this level cannot have.
func (d *Driver) check(s *sandbox.Spec) error {
	if err := sandbox.CheckID(s.ID); err != nil {
		return err
	}
	if err := s.Limits.Check(d.limits()); err != nil {
		return err
	}
	if err := s.Limits.CheckAgent(); err != nil {
		return err
	}
	refuse := func(op, problem, hint string) error {
		return &sandbox.Error{Op: op, Kind: sandbox.ErrUnsupported, Problem: problem, Hint: hint}
	}
	switch {
	case s.Root.Image == nil || s.Root.Image.EROFS == nil:
		return refuse("start sandbox", "a virtual machine does not show this host's files", "give it a root in one file")
	case len(s.Root.Binds) > 0:
		return refuse("mount "+s.Root.Binds[0].Name, "a virtual machine shows no directory of this host", "put it into a template")
	case s.Network != nil && (s.Network.NIC == nil || s.Network.MTU > maxFrame-etherHeader):
		return sandbox.Errorf(sandbox.ErrInvalid, "network", "it has no wire that a machine could take")
	case s.Executables != nil:
		return refuse("executables", "this level does not look at what is executed", "run without the list, or on a level that holds it (gvisor, process)")
	case strings.ContainsAny(s.User.Name+s.User.Home, "\x00\n") || strings.Contains(s.User.Name, ":"):
		return sandbox.Errorf(sandbox.ErrInvalid, "start sandbox", "%q is no user's name", s.User.Name)
	}
	var targets []string
	for _, m := range s.Mounts {
		if m.Access == sandbox.ReadWrite {
			return refuse("mount "+m.Name, "a virtual machine gets copies of this host's files, so nothing could be written to them", "run in it as a workspace, --workspace DIR:cow, and take what was changed: caisson changes apply; or run on another level: --isolation gvisor")
		}
		targets = append(targets, m.Target)
	}
	for _, sc := range s.Scratch {
		targets = append(targets, sc.Target)
	}
	for _, m := range s.Masks {
		targets = append(targets, m.Target)
	}
	for _, t := range targets {
		ours := sandbox.Within(t, "/proc") || sandbox.Within(t, "/sys") || sandbox.Within(t, "/dev") && t != "/dev/shm"
		if ours || !path.IsAbs(t) || path.Clean(t) != t || t == "/" || strings.ContainsRune(t, 0) {
			return sandbox.Errorf(sandbox.ErrInvalid, "start sandbox", "nothing can be placed at %q inside", t)
		}
	}
	return nil
}

const (
	// agentMemory is the agent's own share of what the guest's kernel gives the sandbox,
	// in bytes, and agentTasks its own threads.
	agentMemory = 24 << 20
	agentTasks  = 32
	// staysFor is how long the agent waits for another stream: longer than any machine
	// lives. Without its owner there is no machine.
	staysFor = 10 * 365 * 24 * time.Hour
)

// hostname is what the machine is called.
func hostname(s *sandbox.Spec) string { return cmp.Or(s.Hostname, "sandbox") }

// names are the files that tell the sandbox's names. One without names has those of the
// root, and a copy that goes on may have names of its own.
func names(s *sandbox.Spec) []sandbox.NameFile {
	if s.MachineID != "" {
		return s.NameFiles()
	}
	other := *s
	other.MachineID = "none"
	all := other.NameFiles()
	for i := range all {
		all[i].Text = ""
	}
	return all
}

// config is what the machine is to be, and what it writes to.
func config(s *sandbox.Spec, mark wire.Mark) (*boot.Config, *scratch) {
	u := s.User
	c := &boot.Config{
		Hostname: hostname(s), Names: names(s), Root: rootSerial, Disk: scratchSerial,
		Argv: []string{guest.AgentArgv0, "-stay", staysFor.String(), "-user", fmt.Sprintf("%d:%d:%s:%s", u.UID, u.GID, u.Name, u.Home)},
		Env:  []string{agent.MarkVariable + "=" + mark.String(), agent.OOMVariable + "=1"},
	}
	if len(s.Mounts) > 0 {
		c.Copies = copiesSerial
	}
	if s.Sudo {
		c.Argv = append(c.Argv, "-sudo", "-programs", sandbox.ProgramDir)
	} else {
		// It needs no_new_privs, and root would have this kernel all the same.
		c.Argv = append(c.Argv, "-filter")
	}
	if n := s.Network; n != nil {
		c.Network = &boot.Network{Address: n.Address.String(), Gateway: n.Gateway.String(), MAC: gatewayMAC.String(), MTU: n.MTU}
	}
	if s.Limits.Memory > 0 {
		c.Memory = s.Limits.Memory + agentMemory
	}
	if s.Limits.Processes > 0 {
		c.Processes = min(int64(s.Limits.Processes)+agentTasks, cgroup.MaxPids) // a guest's kernel takes no more either
	}
	return c, place(s, c)
}

// place says what is mounted where, and what of it lies on the disk.
func place(s *sandbox.Spec, c *boot.Config) *scratch {
	w := &scratch{}
	private, cow := s.Shares()
	if s.Sudo {
		c.Layer = w.part(s.RootSize, 0, 0o755, sandbox.RootUser())
	}
	for _, sc := range private {
		m := boot.Mount{Target: sc.Target, Dir: true}
		user := s.User
		m.Mode = 0o755
		if sc.Sticky {
			m.Mode, user = 0o1777, sandbox.RootUser()
		}
		if sc.Memory {
			m.Size, m.Inodes, m.UID, m.GID, m.NoExec = sc.Size, sc.Inodes, user.UID, user.GID, true
		} else {
			m.Part = w.part(sc.Size, sc.Inodes, m.Mode, user)
		}
		c.Mounts = append(c.Mounts, m)
	}
	for i, m := range s.Mounts {
		b := boot.Mount{Target: m.Target, Dir: m.Dir, Copy: strconv.Itoa(i)}
		if m.Access == sandbox.CopyOnWrite {
			b.Part = w.part(cow, s.Limits.Inodes, 0o755, sandbox.RootUser())
		}
		c.Mounts = append(c.Mounts, b)
	}
	for _, m := range s.Masks {
		c.Mounts = append(c.Mounts, boot.Mount{Target: m.Target, Hide: true, Dir: m.Dir})
	}
	return w
}
