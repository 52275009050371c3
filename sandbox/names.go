// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"slices"
	"strings"
)

// NameFile is a file of the root that tells a sandbox's name.
type NameFile struct {
	// Target is its path inside.
	Target string `json:"target"`
	// Text is what it says. Of /etc/hosts that is one line: see HostsFor.
	Text string `json:"text"`
}

// HostsFile is where a sandbox finds its own name by an address.
const HostsFile = "/etc/hosts"

// NameFiles are the files that tell MachineID, and Hostname as uname(2) tells it; none
// without MachineID. A level shows them where the root has a regular file there, whatever
// it says. What lies in a mount, in scratch or under a mask is not the root's, and not among
// them. D-Bus has looked for the machine's id in /var/lib/dbus before systemd gave it its
// place in /etc, machine-id(5).
func (s *Spec) NameFiles() []NameFile {
	if s.MachineID == "" {
		return nil
	}
	all := []NameFile{
		{"/etc/hostname", s.Hostname + "\n"},
		{HostsFile, ownAddress + " " + s.Hostname + "\n"},
		{"/etc/machine-id", s.MachineID + "\n"},
		{"/var/lib/dbus/machine-id", s.MachineID + "\n"},
	}
	return slices.DeleteFunc(all, func(f NameFile) bool { return s.covers(f.Target) })
}

// covers says whether a path shows something else than the root.
func (s *Spec) covers(target string) bool {
	return slices.ContainsFunc(s.Mounts, func(m Mount) bool { return Within(target, m.Target) }) ||
		slices.ContainsFunc(s.Scratch, func(d Scratch) bool { return Within(target, d.Target) }) ||
		slices.ContainsFunc(s.Masks, func(m Mask) bool { return Within(target, m.Target) })
}

// ownAddress is what a host's own name stands for where it has no lasting address: Debian's
// use of hosts(5).
const ownAddress = "127.0.1.1"

// HostsFor is the text of a hosts file with line, of NameFiles, in the place of the one that
// it had for the same address; at its end where it had none. Its other lines stay.
func HostsFor(text, line string) string {
	var b strings.Builder
	done := false
	for old := range strings.Lines(text) {
		if fields := strings.Fields(old); len(fields) == 0 || fields[0] != ownAddress {
			b.WriteString(old)
			continue
		}
		if !done {
			b.WriteString(line)
		}
		done = true
	}
	if done {
		return b.String()
	}
	if text != "" && !strings.HasSuffix(text, "\n") {
		b.WriteByte('\n')
	}
	b.WriteString(line)
	return b.String()
}
