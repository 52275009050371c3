// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/caisson-run/caisson/sandbox"
)

// Volume is an entry of files.volumes: a directory that is a workspace's own, is kept
// between runs in it, and is none of this host's.
type Volume struct {
	At     Pos
	Name   string
	Target string
	Size   int64             // bytes that it may have when a run begins; 0 is no bound
	Files  map[string]string // what a new one has, by path below it
}

// PlanVolume is a volume of a plan.
type PlanVolume struct {
	Name   string            `json:"name"`
	Target string            `json:"target"`
	Size   int64             `json:"size,omitempty"`
	Files  map[string]string `json:"-"`
	From   string            `json:"from"` // file:line
}

const (
	maxVolumes    = 16
	maxSeeds      = 64
	maxVolumeName = 32
)

// volume reads an entry of files.volumes.
func (d *decoder) volume(n *yaml.Node) {
	v := Volume{At: at(n)}
	before := len(d.faults)
	d.mapping(n, "a volume", d.volumeFields(&v))
	if len(d.faults) > before || n.Kind != yaml.MappingNode {
		return
	}
	list := d.file.Files.Volumes
	switch {
	case v.Name == "" || v.Target == "":
		d.fault(at(n), "write {name: home, target: /home/user}", "a volume needs name and target")
	case slices.ContainsFunc(list, func(o Volume) bool { return o.Name == v.Name }):
		d.fault(at(n), "keep one of them", "there are two volumes %s", v.Name)
	case slices.ContainsFunc(list, func(o Volume) bool { return sandbox.Within(o.Target, v.Target) || sandbox.Within(v.Target, o.Target) }):
		d.fault(at(n), "choose targets that lie beside each other", "volume %s lies in another one", v.Name)
	case len(list) == maxVolumes:
		d.fault(at(n), "", "there are more than %d volumes", maxVolumes)
	default:
		d.file.Files.Volumes = append(list, v)
	}
}

func (d *decoder) volumeFields(v *Volume) []field {
	return []field{
		{"name", func(n *yaml.Node) { v.Name = d.text(n, "name", checkVolumeName).V }},
		{"target", func(n *yaml.Node) { v.Target = d.text(n, "target", checkTarget).V }},
		{"size", func(n *yaml.Node) {
			d.value(n, "size", scalarTextOrInt, func(s string) (err error) { v.Size, err = ParseSize(s); return err })
		}},
		{"files", func(n *yaml.Node) {
			v.Files = map[string]string{}
			for key, value := range d.pairs(n, "files of a volume") {
				if err := checkSeed(key.Value); err != nil {
					d.fault(at(key), sandbox.Hint(err), "files of a volume: %v", err)
				} else if d.plain(value) {
					v.Files[key.Value] = d.text(value, "files."+key.Value, func(string) error { return nil }).V
				}
			}
			if len(v.Files) > maxSeeds {
				d.fault(at(n), "", "a volume has more than %d files", maxSeeds)
			}
		}},
	}
}

func checkVolumeName(s string) error {
	plain := func(r rune) bool { return r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' || r == '_' }
	if s == "" || len(s) > maxVolumeName || strings.ContainsFunc(s, func(r rune) bool { return !plain(r) }) || s[0] == '-' {
		return invalid("write home, or another word of small letters, digits, - and _", "%s is no name of a volume", quote(s))
	}
	return nil
}

// checkSeed refuses what is no path below a volume.
func checkSeed(s string) error {
	if s == "" || len(s) > 1024 || path.IsAbs(s) || path.Clean(s) != s || s == "." || s == ".." || strings.HasPrefix(s, "../") || strings.ContainsRune(s, 0) {
		return invalid("write .config/tool/config.toml", "%s is no path below the volume", quote(s))
	}
	return nil
}

// volumes are the file's. They are for what the operator runs in a workspace: what one
// key left in them another would read.
func (d *decision) volumes() *refusal {
	f := d.file
	if f == nil || len(f.Files.Volumes) == 0 {
		return nil
	}
	if !d.ownRun() {
		return refuse(f.rule(f.Files.Volumes[0].At), "leave files.volumes out for sandboxes of clients", "volumes are for the operator's own runs")
	}
	for _, v := range f.Files.Volumes {
		from := f.rule(v.At)
		if d.plan.Workspace == nil {
			return refuse(from, "name it: --workspace DIR", "volume %s belongs to a workspace, and there is none", v.Name)
		}
		if d.system != nil {
			if r := d.system.boundVolume(v); r != nil {
				return r
			}
		}
		for _, m := range d.plan.Mounts {
			if at := d.landing(m); sandbox.Within(v.Target, at) || at == v.Target {
				return refuse(from, "give one of them another target", "volume %s and %s would both be at %s", v.Name, m.Source, v.Target)
			}
		}
		d.plan.Volumes = append(d.plan.Volumes, PlanVolume{v.Name, v.Target, v.Size, v.Files, from})
	}
	return nil
}

// boundVolume: one of that name and place, which may be as large.
func (f *File) boundVolume(v Volume) *refusal {
	for _, have := range f.Files.Volumes {
		if have.Name != v.Name || have.Target != v.Target {
			continue
		}
		if bound(float64(v.Size)) > bound(float64(have.Size)) {
			return refuse(f.rule(have.At), "change the entry to size: "+formatSize(v.Size), "volume %s may have %s", v.Name, formatSize(have.Size))
		}
		return nil
	}
	return refuse(f.rule(f.Files.At), f.add(fmt.Sprintf("files: {volumes: [{name: %s, target: %s}]}", v.Name, v.Target)), "the policy has no volume %s at %s", v.Name, v.Target)
}

// volumesWithin holds a policy file to the system's.
func volumesWithin(sys, f *File) *refusal {
	for _, v := range f.Files.Volumes {
		if r := sys.boundVolume(v); r != nil {
			return r.by(f, v.At)
		}
	}
	return nil
}

// inVolume says whether a path inside is a volume's.
func (p *Plan) inVolume(at string) bool {
	return slices.ContainsFunc(p.Volumes, func(v PlanVolume) bool { return sandbox.Within(at, v.Target) })
}

// String is a volume in one phrase.
func (v PlanVolume) String() string {
	s := v.Name + " at " + v.Target + ", kept for this workspace"
	if v.Size > 0 {
		s += ", " + formatSize(v.Size)
	}
	if len(v.Files) > 0 {
		s += "; a new one has " + strings.Join(slices.Sorted(maps.Keys(v.Files)), ", ")
	}
	return s
}

func (e *explainer) volumes() {
	for _, v := range e.plan.Volumes {
		e.add("files.volumes", v.String(), v.From, func(c sandbox.Capabilities) sandbox.Clause {
			return e.can(c.ReadWrite, "the level cannot write to the host")
		})
	}
}
