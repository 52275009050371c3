// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"path/filepath"
	"strings"
	"sync"

	"github.com/caisson-run/caisson/image/reference"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/tool"
)

// Options are the layers of a Policy. Each may be missing.
type Options struct {
	// System is /etc/caisson/policy.yaml: it bounds File and every call, and
	// grants nothing by itself.
	System *File
	// File is the policy file of --policy, or the one bound to a key.
	File *File
	// Defaults are the limits where none are said; a zero value means
	// sandbox.DefaultLimits.
	Defaults sandbox.Limits
}

// Policy decides calls. It does not change and may be used from many
// goroutines.
type Policy struct {
	system, file *File
	defaults     sandbox.Limits
	conflict     *refusal // the file asks for more than the system file allows: no call passes
	digest       string
	tools        func() *tool.Registry // made when it is first needed: most runs call none
}

// New puts the layers together. A file with relative host paths and a relative
// Dir is ErrInvalid. A file that goes beyond the system file is no error here:
// every call is then denied, by the system file's line.
func New(o Options) (*Policy, error) {
	p := &Policy{system: o.System, file: o.File, defaults: o.Defaults}
	empty := true
	for _, l := range limits() {
		empty = empty && l.get(&o.Defaults) == 0
	}
	if empty {
		p.defaults = sandbox.DefaultLimits()
		p.defaults.OutputKill = o.Defaults.OutputKill
	}
	for _, f := range []*File{o.System, o.File} {
		if err := f.absolute(); err != nil {
			return nil, err
		}
	}
	if o.System != nil && o.File != nil {
		p.conflict = p.fileWithinSystem()
	}
	var err error
	p.tools = sync.OnceValue(p.offered)
	p.digest, err = p.sum()
	return p, err
}

// WithDefaults is the same with other limits where none are said.
func (p *Policy) WithDefaults(l sandbox.Limits) (*Policy, error) {
	return New(Options{System: p.system, File: p.file, Defaults: l})
}

// absolute refuses a file whose relative paths start nowhere.
func (f *File) absolute() error {
	if f == nil || filepath.IsAbs(f.Dir) {
		return nil
	}
	for _, n := range f.hostPaths() {
		if !filepath.IsAbs(n) {
			return &sandbox.Error{
				Op: f.Name, Kind: sandbox.ErrInvalid, Problem: "the directory that " + quote(n) + " starts from is not known",
				Hint: "give the policy file by its absolute path",
			}
		}
	}
	return nil
}

// hostPaths are all host paths of f, as written.
func (f *File) hostPaths() []string {
	var out []string
	for _, n := range f.named() {
		out = append(out, n.written)
	}
	for _, t := range f.dirs() {
		out = append(out, t.V)
	}
	if f.Files.Rootfs.Said() {
		out = append(out, f.Files.Rootfs.V)
	}
	if r, err := reference.Parse(f.Image.V); err == nil && r.Local() {
		out = append(out, r.Path)
	}
	if f.Network.UpstreamCA.Said() {
		out = append(out, f.Network.UpstreamCA.V)
	}
	for _, s := range f.Secrets {
		if path, ok := strings.CutPrefix(s.From, fromFile); ok {
			out = append(out, path)
		}
	}
	if w := f.Approvals.Webhook; w != nil {
		if path, ok := strings.CutPrefix(w.Secret, fromFile); ok {
			out = append(out, path)
		}
	}
	return out
}

// Terminal says whether a run of the command line has a terminal where there is one.
func (p *Policy) Terminal() bool { return p.file != nil && p.file.Terminal.V }

// Digest names what the layers say, "sha256:" and 64 hex digits. Comments,
// order of keys and places do not change it; any value does.
func (p *Policy) Digest() string {
	if p == nil {
		return ""
	}
	return p.digest
}

// sum is the digest of the layers' canonical form: JSON, whose encoder sorts
// the keys of maps.
func (p *Policy) sum() (string, error) {
	form := struct {
		Version      int
		System, File any // *canonical, whose shape the encoder learns where there is one
		Defaults     sandbox.Limits
	}{Version: 1, Defaults: p.defaults}
	if p.system != nil {
		form.System = p.system.canonical()
	}
	if p.file != nil {
		form.File = p.file.canonical()
	}
	b, err := json.Marshal(form)
	if err != nil {
		return "", &sandbox.Error{Op: "policy digest", Kind: sandbox.ErrInvalid, Problem: "it cannot be encoded", Cause: err}
	}
	sum := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(sum[:]), nil
}

// canonical is a File without places, host paths resolved.
type canonical struct {
	Isolation, User, Rootfs, Image            string
	Images                                    []string
	BestEffort, WritableSaid                  bool
	NoWall, Terminal                          bool `json:",omitempty"`
	AnyEnv                                    bool `json:",omitempty"`
	Limits                                    sandbox.Limits
	Watch                                     []WatchRule
	Cooling                                   *PlanCooling `json:",omitempty"`
	CoolingOff                                bool         `json:",omitempty"`
	Workspace                                 []Mount
	Mounts                                    []Mount
	Volumes                                   []Volume `json:",omitempty"`
	Writable, Deny, Collect, Toolchains, Pass []string
	Set                                       map[string]string
	NetworkAllow, NetworkDeny                 []string
	Egress, Queries, Connections, Bandwidth   int64
	Commands, Code                            any `json:",omitempty"`
	Approvals                                 any `json:",omitempty"`
	Tools, Risk                               any `json:",omitempty"`
	Web                                       []WebRule
	Servers                                   []any `json:",omitempty"`
	Secrets                                   []Secret
	UpstreamCA                                string
}

func (f *File) canonical() *canonical {
	if f == nil {
		return nil
	}
	c := &canonical{
		Commands: f.Commands.sum(), Code: f.Code.sum(), Approvals: f.Approvals.sum(f), Tools: f.Tools.sum(), Risk: f.Risk.sum(),
		NoWall: f.NoWall.Said(), Terminal: f.Terminal.V,
		Isolation: f.Isolation.V, User: f.User.V, BestEffort: f.BestEffort.V, AnyEnv: f.Env.Any.V, Limits: f.Limits,
		WritableSaid: f.Files.Writable.Said(), Writable: texts(f.Files.Writable.V), Deny: texts(f.Files.Deny),
		Collect: texts(f.Files.Collect), Pass: texts(f.Env.Pass), Set: map[string]string{},
		NetworkAllow: texts(f.Network.Allow), NetworkDeny: texts(f.Network.Deny),
		Egress: f.Network.Budget.Egress.V, Queries: f.Network.Budget.Queries.V,
		Connections: f.Network.Budget.Connections.V, Bandwidth: f.Network.Budget.Bandwidth.V,
	}
	if f.Cooling.At.Said() {
		c.Cooling, c.CoolingOff = &PlanCooling{f.Cooling.Freeze, f.Cooling.Disk}, f.Cooling.Off
	}
	for _, r := range f.Watch {
		r.From = ""
		c.Watch = append(c.Watch, r)
	}
	strip := func(m Mount) Mount {
		return Mount{Source: f.hostPath(m.Source), Target: m.Target, Access: m.Access, GitWrite: m.GitWrite, Shared: m.Shared}
	}
	if f.Files.Workspace != nil {
		c.Workspace = []Mount{strip(*f.Files.Workspace)}
	}
	for _, m := range f.Files.Mounts {
		c.Mounts = append(c.Mounts, strip(m))
	}
	for _, v := range f.Files.Volumes {
		v.At = Pos{}
		c.Volumes = append(c.Volumes, v)
	}
	if f.pathTools().Said() {
		c.Toolchains = append(c.Toolchains, pathWord)
	}
	for _, t := range f.dirs() {
		c.Toolchains = append(c.Toolchains, f.hostPath(t.V))
	}
	if f.Files.Rootfs.Said() {
		c.Rootfs = f.hostPath(f.Files.Rootfs.V)
	}
	if f.Image.Said() {
		c.Image = f.image().String()
	}
	c.Images = texts(f.Images)
	for _, w := range f.Network.Web {
		w.At = Pos{}
		c.Web = append(c.Web, w)
	}
	for _, s := range f.Secrets {
		s.From, s.At = f.secretFrom(&s), Pos{}
		c.Secrets = append(c.Secrets, s)
	}
	if f.Network.UpstreamCA.Said() {
		c.UpstreamCA = f.hostPath(f.Network.UpstreamCA.V)
	}
	for name, v := range f.Env.Set {
		c.Set[name] = v.V
	}
	for _, s := range f.Servers {
		c.Servers = append(c.Servers, s.sum(f))
	}
	return c
}

// texts are the values of vs.
func texts(vs []Value[string]) []string {
	out := make([]string, 0, len(vs))
	for _, v := range vs {
		out = append(out, v.V)
	}
	return out
}
