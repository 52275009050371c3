// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"strings"

	"github.com/caisson-run/caisson/image/reference"
	"github.com/caisson-run/caisson/sandbox"
)

// Reads are f itself and the files that it names to be read: of secrets, certificates
// and images, of its servers too. A nil f has none.
func (f *File) Reads() (out []sandbox.HostFile) {
	if f == nil {
		return nil
	}
	if f.From != (sandbox.HostFile{}) {
		out = append(out, f.From)
	}
	name := func(path string) { out = append(out, sandbox.HostFile{Path: f.hostPath(path)}) }
	for _, s := range f.Secrets {
		if path, ok := strings.CutPrefix(s.From, fromFile); ok {
			name(path)
		}
	}
	if w := f.Approvals.Webhook; w != nil {
		if path, ok := strings.CutPrefix(w.Secret, fromFile); ok {
			name(path)
		}
	}
	if f.Network.UpstreamCA.Said() {
		name(f.Network.UpstreamCA.V)
	}
	if r, err := reference.Parse(f.Image.V); err == nil && r.Local() {
		name(r.Path)
	}
	for _, s := range f.Servers {
		inner := f.ServerFile(s)
		inner.From = sandbox.HostFile{}
		out = append(out, inner.Reads()...)
	}
	return out
}

// Reads are those of the system's policy and of the file.
func (p *Policy) Reads() []sandbox.HostFile { return append(p.system.Reads(), p.file.Reads()...) }

// Reads are the files that a plan names besides those of policies: of the operator's
// secrets and certificates, and of the image.
func (p *Plan) Reads() (out []sandbox.HostFile) {
	if p.Image != nil && p.Image.Path != nil {
		out = append(out, sandbox.HostFile{Path: p.Image.Path.Source})
	}
	if p.Network == nil {
		return out
	}
	for _, s := range p.Network.Secrets {
		if path, ok := strings.CutPrefix(s.From, fromFile); ok {
			out = append(out, sandbox.HostFile{Path: path})
		}
	}
	if p.Network.UpstreamCA != nil {
		out = append(out, sandbox.HostFile{Path: p.Network.UpstreamCA.Text})
	}
	return out
}
