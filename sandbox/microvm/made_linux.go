// SPDX-License-Identifier: Apache-2.0

package microvm

import (
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/caisson-run/caisson/sandbox"
)

// made is what a machine's memory knows of what it is in: it goes on in nothing else.
type made struct {
	Level      string   `json:"level"`          // Driver.Name
	Kind       string   `json:"kind,omitempty"` // the monitor's name; empty is QEMU's
	Monitor    string   `json:"monitor"`        // its program, by size and time
	Boot       string   `json:"boot"`           // the kernel and the agent, by the name of the initial RAM disk
	CPU        []string `json:"cpu,omitempty"`  // what the processor can do, where it is this host's
	Memory     int64    `json:"memory"`         // in MiB
	Processors int      `json:"processors"`
	Root       string   `json:"root"` // the image, by its identifier and length
	Disks      []string `json:"disks"`
	MTU        int      `json:"mtu,omitempty"` // of the network device; 0 is none
}

// madeOf is what a machine is now.
func (d *Driver) madeOf(program, initrd string, m *machine, s *sandbox.Spec) (made, error) {
	info, err := os.Stat(program)
	if err != nil {
		return made{}, err
	}
	root, err := identify(s.Root.Image.EROFS)
	if err != nil {
		return made{}, err
	}
	k := made{
		Level: d.Name(), Kind: d.vmm.name(), Monitor: fmt.Sprintf("%d %d", info.Size(), info.ModTime().Unix()), Boot: filepath.Base(initrd),
		Memory: m.memory, Processors: m.processors, Root: root,
	}
	if !d.opts.Emulated {
		k.CPU = processorFeatures()
	}
	for _, disk := range m.disks {
		k.Disks = append(k.Disks, disk.serial)
	}
	if m.network != nil {
		k.MTU = m.network.MTU
	}
	return k, nil
}

// identify names an image by what its superblock says: it is ours, and made of its digest.
func identify(f *os.File) (string, error) {
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	const superblock, uuid = 1024, 48
	b := make([]byte, 16)
	if _, err := f.ReadAt(b, superblock+uuid); err != nil {
		return "", err
	}
	return fmt.Sprintf("%s %d", hex.EncodeToString(b), info.Size()), nil
}

// misfit says why memory of m does not go on in now; empty where it does.
func (m *made) misfit(now *made) string {
	for _, d := range []struct {
		same bool
		why  string
	}{
		{m.Level == now.Level, "on another level: " + m.Level},
		{m.Monitor == now.Monitor, "by another version of the machine monitor"},
		{m.Boot == now.Boot, "with another kernel, or by another version of caisson"},
		{m.Memory == now.Memory && m.Processors == now.Processors, "in a machine of another size"},
		{m.Root == now.Root, "on another image"},
		{slices.Equal(m.Disks, now.Disks) && m.MTU == now.MTU, "in a machine with other devices"},
	} {
		if !d.same {
			return d.why
		}
	}
	for _, f := range m.CPU {
		if !slices.Contains(now.CPU, f) {
			return "on another processor (with " + f + ")"
		}
	}
	return ""
}

// processorFeatures are those of this host's first processor, which proc_cpuinfo(5) calls
// flags.
func processorFeatures() []string {
	b, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(b)) {
		if name, list, _ := strings.Cut(line, ":"); strings.TrimSpace(name) == "flags" {
			return strings.Fields(list)
		}
	}
	return nil
}
