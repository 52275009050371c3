// SPDX-License-Identifier: Apache-2.0

//go:build linux

package drivertest

import (
	"errors"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/sandbox"
)

var refusalTests = []test{
	{name: "a limit that cannot hold is refused by name", run: testRefuseLimit},
	{name: "a spec that contradicts itself", run: testRefuseNonsense},
	{name: "a working directory that is not there", run: testNoDirectory},
	{name: "root", run: testRoot},
}

// testRefuseLimit: the limit is written down, so running without it is no
// choice.
func testRefuseLimit(t *testing.T, s *suite, r road) {
	set := map[sandbox.LimitName]func(*sandbox.Limits){
		sandbox.LimitMemory:    func(l *sandbox.Limits) { l.Memory = 96 * mib },
		sandbox.LimitCPUs:      func(l *sandbox.Limits) { l.CPUs = 0.5 },
		sandbox.LimitProcesses: func(l *sandbox.Limits) { l.Processes = 50 },
		sandbox.LimitDisk:      func(l *sandbox.Limits) { l.Disk = 32 * mib },
		sandbox.LimitInodes:    func(l *sandbox.Limits) { l.Inodes = 1000 },
		sandbox.LimitIO:        func(l *sandbox.Limits) { l.IO = 10 * mib },
		sandbox.LimitIOPS:      func(l *sandbox.Limits) { l.IOPS = 1000 },
	}
	// Those that can be enforced are asked for together.
	all := func(spec *sandbox.Spec) {
		spec.Limits.Explicit = map[sandbox.LimitName]bool{}
		for name, change := range set {
			if s.enforced(name) {
				change(&spec.Limits)
				spec.Limits.Explicit[name] = true
			}
		}
	}
	w := s.fixture(t, all)
	if res, err := r.run(timeout(t), w.spec, w.exec("true")); err != nil || res.Status != sandbox.StatusSuccess {
		t.Errorf("%v can be enforced here, says Probe, but: %+v, %v", w.spec.Limits.Explicit, res, err)
	}
	for name, change := range set {
		if s.enforced(name) {
			continue
		}
		w := s.fixture(t, limit(change), func(spec *sandbox.Spec) { spec.Limits.Explicit = map[sandbox.LimitName]bool{name: true} })
		res, err := r.run(timeout(t), w.spec, w.exec("true"))
		if !errors.Is(err, sandbox.ErrUnsupported) || !strings.Contains(err.Error(), string(name)) {
			t.Errorf("%s is off here and was asked for: %+v, %v; want it refused by name", name, res, err)
		}
		if err != nil && sandbox.Hint(err) == "" && s.caps.Limits[name].Remedy != "" {
			t.Errorf("%s was refused without the hint that Probe knows", name)
		}
	}
}

func testRefuseNonsense(t *testing.T, s *suite, r road) {
	dir := s.path(t)
	write(t, dir+"/f", "x", 0o644)
	for what, change := range map[string]func(*sandbox.Spec){
		"an ID with a path":     func(spec *sandbox.Spec) { spec.ID = "sbx_../../../../etc/passwd" },
		"no ID":                 func(spec *sandbox.Spec) { spec.ID = "" },
		"an ID of a wrong kind": func(spec *sandbox.Spec) { spec.ID = "box_aaaaaaaaaaaaaaaaaaaa" },
		"a short ID":            func(spec *sandbox.Spec) { spec.ID = "sbx_aaaaaaaaaaaaaaa" },
		"a long ID":             func(spec *sandbox.Spec) { spec.ID = "sbx_" + strings.Repeat("a", 65) },
		"an ID with a dash":     func(spec *sandbox.Spec) { spec.ID = "sbx_aaaaaaaaaa-aaaaaaaaaa" },
		"an ID with a line end": func(spec *sandbox.Spec) { spec.ID = "sbx_aaaaaaaaaaaaaaaaaaaa\n" },
		"negative memory":       limit(func(l *sandbox.Limits) { l.Memory = -1 }),
		"memory for no program": limit(func(l *sandbox.Limits) { l.Memory = sandbox.LeastMemory - 1 }),
		"a relative target":     mount(t, dir, "data", sandbox.ReadOnly),
		"an unclean target":     mount(t, dir, "/data/../usr", sandbox.ReadOnly),
	} {
		state := s.path(t) + "/state"
		w, done, err := s.makeFixture(t.Context(), state, change)
		if err != nil {
			continue // refused even earlier
		}
		res, err := r.run(timeout(t), w.spec, w.exec("true"))
		done()
		var e *sandbox.Error
		if err == nil || !errors.As(err, &e) {
			t.Errorf("%s: %+v, %v; want a *sandbox.Error", what, res, err)
		}
	}
}

// testNoDirectory: none is made, least of all on the host.
func testNoDirectory(t *testing.T, s *suite, r road) {
	dir := tree(t, s)
	change := []func(*sandbox.Spec){mount(t, dir, "/data", sandbox.ReadOnly)}
	if s.caps.ReadWrite {
		change = append(change, mount(t, dir, "/mnt/written", sandbox.ReadWrite))
	}
	before := listing(t, dir)
	w := s.fixture(t, change...)
	r, end := s.lasting(t, r, w)
	defer end()
	for name, why := range map[string]string{
		"/nosuch": "no such file", "/etc/passwd": "not a directory", "/usr/bin/id": "not a directory", "/dev/x": "no such file",
		"/tmp/x": "no such file", home + "/a/b": "no such file", "/data/x": "no such file", "/data/file": "not a directory",
		"/mnt/written/x": "no such file", "/mnt/written/file/x": "not a directory",
	} {
		if !s.caps.ReadWrite && strings.HasPrefix(name, "/mnt/") {
			continue
		}
		x := w.exec("pwd")
		x.Dir = name
		w.fresh(t)
		res, err := r.run(timeout(t), w.spec, x)
		if !errors.Is(err, sandbox.ErrInvalid) || !strings.HasPrefix(err.Error(), sandbox.NoDirectory(name, why).Error()) || sandbox.Hint(err) != sandbox.NoDirectoryHint {
			t.Errorf("%s: %+v, %v (%s)", name, res, err, sandbox.Hint(err))
		}
	}
	if after := listing(t, dir); after != before {
		t.Errorf("the host's files were\n%s\nand are\n%s", before, after)
	}
	for name, want := range map[string]string{"/data/sub": "/data/sub", "/mnt": "/mnt", home: home, "/": "/", "/dev/shm": "/dev/shm"} {
		x := w.exec("pwd")
		x.Dir = name
		if o := w.start(t, timeout(t), r, x).ok(t); o.out != want+"\n" {
			t.Errorf("%s: in %q", name, o.out)
		}
	}
}

func testRoot(t *testing.T, s *suite, r road) {
	w := s.fixture(t, func(spec *sandbox.Spec) {
		spec.User = sandbox.RootUser()
		spec.Scratch = append(spec.Scratch, sandbox.Scratch{Target: "/root"})
	})
	if !s.caps.Root {
		if res, err := r.run(timeout(t), w.spec, w.exec("id", "-u")); !errors.Is(err, sandbox.ErrUnsupported) {
			t.Errorf("no root here, says Probe, but: %+v, %v", res, err)
		}
		return
	}
	// Root inside is not the host's: the limits and the host's files hold.
	o := w.run(t, r, "sh", "-c", `id -u; touch /usr/x /etc/x 2>/dev/null && echo WROTE; cat "$0" 2>/dev/null; echo own > /root/f && cat /root/f`, s.dir+"/canary").ok(t)
	if o.out != "0\nown\n" {
		t.Errorf("%q", o.out)
	}
}
