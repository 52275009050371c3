// SPDX-License-Identifier: Apache-2.0

//go:build linux

package docker

import (
	"errors"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/sandbox"
)

// A variant is the same level with another runtime, by a name that engines know;
// where the engine has none of that name it is refused by it.
func TestVariants(t *testing.T) {
	f := newFakeEngine(t)
	f.info["Runtimes"] = map[string]any{"runc": map[string]any{}, "runsc": map[string]any{}}
	d := New(Options{Host: f.host})
	for _, name := range []string{"", "runc", "crun", "runsc ", "../runsc", "runsc:runsc"} {
		if v := d.Variant(name); v != nil {
			t.Errorf("there is a variant %q: %s", name, v.Name())
		}
	}
	for name, lacks := range map[string]string{"runsc": "", "kata": "the engine has no runtime kata"} {
		v := d.Variant(name)
		if v == nil || v.Name() != "docker:"+name || v != d.Variant(name) {
			t.Fatalf("%s: %v", name, v)
		}
		if v.(sandbox.Varied).Variant(name) != nil {
			t.Errorf("a variant of %s has variants", v.Name())
		}
		caps, err := v.Probe(t.Context())
		if err != nil || caps.Unusable != lacks || caps.Network || caps.ReadWrite || caps.CopyOnWrite || caps.Masks {
			t.Errorf("%s: %+v, %v", name, caps, err)
		}
	}
}

// With a kernel of its own between the container and this one nothing of the host
// is mounted, because nobody could see what was; and the engine makes the network
// namespace, because nobody could compare it with this host's.
func TestVariantShowsNothing(t *testing.T) {
	s := spec(t)
	f := &facts{at: address{"unix", strings.TrimPrefix(newFakeEngine(t).host, "unix://")}, api: "1.41"}
	d := New(Options{}).Variant("runsc").(*Driver)
	_, err := d.newPlan(s, [32]byte{}, f)
	if !errors.Is(err, sandbox.ErrUnsupported) || !strings.Contains(err.Error(), "a kernel of its own") {
		t.Errorf("with the host's toolchain: %v", err)
	}
	s.Root = sandbox.Root{Dir: s.Root.Dir, Image: &sandbox.Image{Digest: "sha256:" + strings.Repeat("a", 64)}}
	p, err := d.newPlan(s, [32]byte{}, f)
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	h := p.request.HostConfig
	if h.Runtime != "runsc" || h.NetworkMode != "none" || p.request.NetworkDisabled || len(h.Mounts) > 0 || p.looks || p.here {
		t.Errorf("the engine is asked for %+v", p.request)
	}
	s.Mounts = []sandbox.Mount{{Source: open(t, "/usr"), Name: "/usr", Target: "/mnt", Dir: true}}
	if _, err := d.newPlan(s, [32]byte{}, f); !errors.Is(err, sandbox.ErrUnsupported) {
		t.Errorf("with a mount: %v", err)
	}
}
