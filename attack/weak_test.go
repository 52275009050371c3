// SPDX-License-Identifier: Apache-2.0

//go:build linux

package attack_test

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/attack"
	"github.com/caisson-run/caisson/attack/attacktest"
	"github.com/caisson-run/caisson/attack/probe"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/faketest"
	"github.com/caisson-run/caisson/session"
)

// weak is a level with protections taken out: what it is told to build is
// changed before it builds it.
type weak struct {
	sandbox.Driver
	spec func(*sandbox.Spec)
	exec func(*sandbox.Spec, *sandbox.Exec)
}

func (w weak) change(spec *sandbox.Spec) *sandbox.Spec {
	s := *spec
	s.Mounts, s.Masks, s.Scratch = slices.Clone(s.Mounts), slices.Clone(s.Masks), slices.Clone(s.Scratch)
	if w.spec != nil {
		w.spec(&s)
	}
	return &s
}

func (w weak) Run(ctx context.Context, spec *sandbox.Spec, ex *sandbox.Exec) (*sandbox.Result, error) {
	spec = w.change(spec)
	e := *ex
	if w.exec != nil {
		w.exec(spec, &e)
	}
	return w.Driver.(sandbox.Runner).Run(ctx, spec, &e)
}

func (w weak) Start(ctx context.Context, spec *sandbox.Spec) (sandbox.Instance, error) {
	return w.Driver.Start(ctx, w.change(spec))
}

// The protections, each taken out by itself.

// showsOutside leaves the host's directory of canaries in, where it lies.
func showsOutside(t *testing.T) func(*sandbox.Spec) {
	return func(s *sandbox.Spec) {
		for _, m := range s.Mounts {
			if m.Target != probe.AtData {
				continue
			}
			dir := filepath.Dir(m.Name)
			f, err := os.OpenFile(dir, unix.O_PATH|unix.O_DIRECTORY, 0)
			if err != nil {
				t.Error(err)
				return
			}
			t.Cleanup(func() { f.Close() })
			s.Mounts = append(s.Mounts, sandbox.Mount{Source: f, Name: dir, Target: dir, Access: sandbox.ReadWrite, Dir: true})
			return
		}
	}
}

func hidesNothing(s *sandbox.Spec) { s.Masks = nil }

// protectsNothing leaves out what is mounted over parts of the workspace.
func protectsNothing(s *sandbox.Spec) {
	s.Mounts = slices.DeleteFunc(s.Mounts, func(m sandbox.Mount) bool { return strings.HasPrefix(m.Target, probe.AtWorkspace+"/") })
}

func mountsWritable(s *sandbox.Spec) {
	for i := range s.Mounts {
		if s.Mounts[i].Target == probe.AtData {
			s.Mounts[i].Access = sandbox.ReadWrite
		}
	}
}

func limitsNothing(s *sandbox.Spec) {
	s.Limits.Processes, s.Limits.Memory, s.Limits.CPUs, s.Limits.OpenFiles, s.Limits.Disk, s.Limits.Inodes = 0, 0, 0, 0, 1<<40, 0
	for i := range s.Scratch {
		if !s.Scratch[i].Memory {
			s.Scratch[i].Size, s.Scratch[i].Inodes = 1<<40, 0
		}
	}
}

// passesEnvironment hands caisson's own environment on.
func passesEnvironment(_ *sandbox.Spec, e *sandbox.Exec) {
	e.Env = append(slices.Clone(e.Env), os.Environ()...)
}

// writesDown keeps what it was told in the state directory.
func writesDown(s *sandbox.Spec, e *sandbox.Exec) {
	dir := filepath.Dir(filepath.Dir(s.StateDir))
	_ = os.WriteFile(filepath.Join(dir, "notes"), []byte(strings.Join(e.Env, "\n")), 0o600)
}

// carelessSession asks for more output than was asked of it.
type carelessSession struct{ attack.Doer }

func (c carelessSession) Do(ctx context.Context, call *session.Call, io session.IO) (*sandbox.Result, error) {
	if call.Limits.Output > 0 {
		call.Limits.Output = 64 << 20
	}
	return c.Doer.Do(ctx, call, io)
}

// nothing is a level where nothing holds.
func nothing(t *testing.T) sandbox.Driver {
	fake := faketest.New()
	fake.HostPIDs = true
	outside := func(*sandbox.Spec) {}
	if t != nil {
		outside = showsOutside(t)
	}
	return weak{fake, func(s *sandbox.Spec) {
		outside(s)
		if f, err := os.OpenFile("/sys", unix.O_PATH|unix.O_DIRECTORY, 0); err == nil { // closed with the process
			s.Mounts = append(s.Mounts, sandbox.Mount{Source: f, Name: "/sys", Target: "/sys", Access: sandbox.ReadWrite, Dir: true})
		}
		hidesNothing(s)
		protectsNothing(s)
		mountsWritable(s)
		limitsNothing(s)
		s.User = sandbox.RootUser()
	}, func(s *sandbox.Spec, e *sandbox.Exec) {
		passesEnvironment(s, e)
		writesDown(s, e)
	}}
}

// bare runs the probe as any process of the host. Only what changes the probe
// itself may be tried there.
type bare struct{ sandbox.Driver }

func (bare) Run(ctx context.Context, spec *sandbox.Spec, ex *sandbox.Exec) (*sandbox.Result, error) {
	for _, m := range spec.Mounts {
		if m.Target != ex.Argv[0] {
			continue
		}
		cmd := exec.CommandContext(ctx, m.Name, ex.Argv[1:]...)
		cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = ex.Env, ex.Stdin, ex.Stdout, ex.Stderr
		err := cmd.Run()
		return &sandbox.Result{Status: sandbox.StatusSuccess}, err
	}
	return nil, os.ErrNotExist
}

// asRoot runs code as who the agent inside is.
type asRoot struct{ attack.Doer }

func (a asRoot) Do(ctx context.Context, call *session.Call, io session.IO) (*sandbox.Result, error) {
	call.Root = true
	return a.Doer.Do(ctx, call, io)
}

// losesAgent has no agent any more when it is to take files out.
type losesAgent struct{ attack.Doer }

func (l losesAgent) Do(ctx context.Context, call *session.Call, io session.IO) (*sandbox.Result, error) {
	res, err := l.Doer.Do(ctx, call, io)
	for _, w := range call.Collect {
		if res != nil {
			res.Uncollected = append(res.Uncollected, sandbox.Uncollected{Pattern: w.Pattern, Reason: "the agent is gone"})
		}
	}
	return res, err
}

// followsLinks is a host that follows what links it finds.
type followsLinks struct{ attack.Doer }

func (f followsLinks) Do(ctx context.Context, call *session.Call, io session.IO) (*sandbox.Result, error) {
	res, err := f.Doer.Do(ctx, call, io)
	for _, w := range call.Collect {
		data, rerr := os.ReadFile(call.Argv[3])
		if rerr == nil {
			_ = os.WriteFile(filepath.Join(w.Dest, "swapped"), data, 0o600)
		}
	}
	return res, err
}

// tellsNothing says nothing of what came into being in a workspace.
type tellsNothing struct{ attack.Doer }

func (c tellsNothing) Do(ctx context.Context, call *session.Call, io session.IO) (*sandbox.Result, error) {
	res, err := c.Doer.Do(ctx, call, io)
	if res != nil {
		res.Findings = nil
	}
	return res, err
}

// collectsByName writes what is collected to where the name leads afterwards.
type collectsByName struct{ attack.Doer }

func (c collectsByName) Do(ctx context.Context, call *session.Call, io session.IO) (*sandbox.Result, error) {
	res, err := c.Doer.Do(ctx, call, io)
	for _, w := range call.Collect {
		_ = os.WriteFile(filepath.Join(w.Dest, "F20"), []byte("collected"), 0o600)
	}
	return res, err
}

// bringsAll takes out a bare repository beside what comes out.
type bringsAll struct{ attack.Doer }

func (b bringsAll) Do(ctx context.Context, call *session.Call, io session.IO) (*sandbox.Result, error) {
	res, err := b.Doer.Do(ctx, call, io)
	for _, w := range call.Collect {
		err = errors.Join(err, os.MkdirAll(w.Dest+"/objects", 0o755), os.MkdirAll(w.Dest+"/refs", 0o755), os.WriteFile(w.Dest+"/HEAD", nil, 0o644))
	}
	return res, err
}

// variants are levels with protections out, and the cases that must be red then:
// these and no others.
func variants(t *testing.T) []variant {
	real := func() sandbox.Driver { return caisson.Drivers()["gvisor"] }
	altered := func(spec func(*sandbox.Spec)) sandbox.Driver { return weak{Driver: real(), spec: spec} }
	return []variant{
		{"nothing hidden", altered(hidesNothing), nil, "F13 F14 F21"},
		{"nothing protected", altered(protectsNothing), nil, "F15 F16 F26"},
		{"what came into being is not told", real(), func(d attack.Doer) attack.Doer { return tellsNothing{d} }, "F26"},
		{"read-only mount writable", altered(mountsWritable), nil, "F09 F21"},
		{"environment passed on", weak{Driver: real(), exec: passesEnvironment}, nil, "S01 S02"},
		{"secrets written down", weak{Driver: real(), exec: writesDown}, nil, "S04"},
		{"processes not limited", altered(func(s *sandbox.Spec) { s.Limits.Processes = 0 }), nil, "L01"},
		{"memory not limited", altered(func(s *sandbox.Spec) { s.Limits.Memory = 0 }), nil, "L02"},
		{"disk not limited", altered(func(s *sandbox.Spec) {
			for i := range s.Scratch {
				s.Scratch[i].Size, s.Scratch[i].Inodes = 1<<30, 1<<20
			}
		}), nil, "L03"},
		{"descriptors not limited", altered(func(s *sandbox.Spec) { s.Limits.OpenFiles = 0 }), nil, "L09"},
		{"processors not limited", altered(func(s *sandbox.Spec) { s.Limits.CPUs = 0 }), nil, "L10"},
		{"files collected by name", real(), func(d attack.Doer) attack.Doer { return collectsByName{d} }, "F20"},
		{"a repository collected", real(), func(d attack.Doer) attack.Doer { return bringsAll{d} }, "F24"},
		{"output not limited", real(), func(d attack.Doer) attack.Doer { return carelessSession{d} }, "L04"},
		{"links followed", real(), func(d attack.Doer) attack.Doer { return followsLinks{d} }, "F07"},
		{"agent lost", real(), func(d attack.Doer) attack.Doer { return losesAgent{d} }, "K18"},
		{"code as the sandbox's root", real(), func(d attack.Doer) attack.Doer { return asRoot{d} }, "K18"},
		{"nothing hidden, the host's kernel", weak{Driver: caisson.Drivers()["process"], spec: hidesNothing}, nil, "F13 F14 F21 K17 N04"},
		{"a process of the host", bare{faketest.New()}, nil, "K10"},
	}
}

// untar unpacks like a program that trusts what it unpacks, and makes its
// mountpoints by name.
func untar(ctx context.Context, archive, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, argv := range [][]string{
		{"tar", "-xf", archive, "-C", filepath.Dir(dir), "layer.tar"},
		{"tar", "-xpPf", filepath.Join(filepath.Dir(dir), "layer.tar"), "-C", dir},
	} {
		if err := exec.CommandContext(ctx, argv[0], argv[1:]...).Run(); err != nil {
			return err
		}
	}
	for _, at := range []string{"dev/shm", "tmp/x", "data/F11"} {
		_ = os.MkdirAll(filepath.Join(dir, at), 0o755)
	}
	return nil
}

// The image cases are about no level: they turn red with an unpacker that trusts
// what it unpacks.
func TestCarelessUnpacker(t *testing.T) {
	want := []string{"F10", "F11", "L11"}
	r := attacktest.Run(t, attacktest.Level{Driver: faketest.New(), Unpack: untar}, want...)
	for _, f := range r.Cases {
		t.Logf("%s %s: %s", f.ID, f.Verdict, f.Reason)
	}
	if got := attacktest.Red(r); !slices.Equal(got, want) {
		t.Errorf("red are %q, want %q", got, want)
	}
}

type variant struct {
	name   string
	driver sandbox.Driver
	doer   func(attack.Doer) attack.Doer
	red    string
}

// Each protection that is taken out turns exactly the cases red that are about
// it. The cases that need a sandbox of their own are run where they should turn.
func TestWithProtectionsOut(t *testing.T) {
	for _, v := range variants(t) {
		t.Run(v.name, func(t *testing.T) {
			want := strings.Fields(v.red)
			only := want
			if strings.ContainsAny(want[0][:1], "FS") && want[0] != "F07" && want[0] != "F20" && want[0] != "F24" {
				only = append(attacktest.OneSandbox(), want...)
			}
			r := attacktest.Run(t, attacktest.Level{Driver: v.driver, Doer: v.doer}, only...)
			if got := attacktest.Red(r); !slices.Equal(got, want) {
				t.Errorf("red are %q, want %q", got, want)
			}
			for _, f := range r.Cases {
				if f.Verdict == attack.Breach || f.Verdict == attack.Unclear {
					t.Logf("%s %s: %s", f.ID, f.Verdict, f.Reason)
				}
			}
		})
	}
}

const ownNetwork = "CAISSON_ATTACK_OWN_NETWORK"

// Where nothing holds, every case is red: none of them passes because it looks
// at the wrong thing.
func TestNothingHolds(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to hold nothing with")
	}
	if os.Getenv(ownNetwork) == "" {
		// In a network of its own, which has a metadata service.
		cmd := exec.Command(os.Args[0], "-test.run", "^TestNothingHolds$", "-test.v")
		cmd.Env = append(os.Environ(), ownNetwork+"=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET}
		out, err := cmd.CombinedOutput()
		t.Logf("%s", out)
		if err != nil {
			t.Error(err)
		}
		return
	}
	metadataService(t)
	r := attacktest.Run(t, attacktest.Level{Driver: nothing(t), Doer: func(d attack.Doer) attack.Doer { return carelessSession{d} }, Again: second})
	// What this level or host cannot show.
	exempt := map[string]string{
		"F07": "TestWithProtectionsOut", "F20": "TestWithProtectionsOut", "K18": "TestWithProtectionsOut",
		"F23": "TestWithWeakerPolicy", "F24": "TestWithProtectionsOut",
		"L10": "TestWithProtectionsOut: a busy machine may have no more for it",
		"L12": "TestNoisyNeighbours", "L13": "TestNoisyNeighbours",
		"F10": "TestCarelessUnpacker", "F11": "TestCarelessUnpacker", "L11": "TestCarelessUnpacker",
		"S05": "TestWithWiderNetwork", "S06": "TestWithWiderNetwork", // the fake level takes no wire
		"N02": "TestWithHostsNetwork", "N05": "TestWithHostsNetwork", "N06": "TestWithHostsNetwork", "N11": "TestWithHostsNetwork",
		"N07": "TestWeakSecondCaisson", "N12": "TestWeakSecondCaisson", "N16": "TestWeakSecondCaisson", "N17": "TestWeakSecondCaisson", "N18": "TestWeakSecondCaisson", "N19": "TestWithWiderNetwork",
		"V01": "TestWeakSecondCaisson", "V02": "TestWeakSecondCaisson", "V03": "TestWeakSecondCaisson",
		"N08": "TestWithWiderNetwork", "N09": "TestWithHostsNetwork", "N10": "TestWithHostsNetwork", "N13": "TestWithHostsNetwork", "N14": "TestWithHostsNetwork",
		"K10": "TestWithProtectionsOut: the fake level changes its root, and the kernel makes no user namespace then",
	}
	for _, c := range r.Cases {
		if c.ID[0] == 'P' {
			exempt[c.ID] = "TestWithWeakerPolicy: no level decides anything"
		}
	}
	if fd, err := unix.Socket(unix.AF_ALG, unix.SOCK_SEQPACKET, 0); err != nil {
		exempt["K01"] = "this kernel has no AF_ALG"
	} else {
		unix.Close(fd)
	}
	if _, _, errno := unix.RawSyscall(0x40000000|unix.SYS_GETPID, 0, 0, 0); errno != 0 {
		exempt["K03"] = "this kernel has no x32"
	}
	if _, err := os.Stat("/proc/sysrq-trigger"); err != nil {
		exempt["F02"] = "this kernel has no sysrq"
	}
	for _, f := range r.Cases {
		t.Logf("%s %-14s %s: %s", f.ID, f.Verdict, f.Title, f.Reason)
		if why, ok := exempt[f.ID]; f.Verdict != attack.Breach && !ok {
			t.Errorf("%s %s: %s %s", f.ID, f.Title, f.Verdict, why)
		}
	}
}

// metadataService gives this network the address at which clouds have one.
func metadataService(t *testing.T) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	lo, _ := unix.NewIfreq("lo")
	lo.SetUint16(unix.IFF_UP)
	alias, _ := unix.NewIfreq("lo:1")
	if err := alias.SetInet4Addr([]byte{169, 254, 169, 254}); err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo), unix.IoctlIfreq(fd, unix.SIOCSIFADDR, alias)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	l, err := net.Listen("tcp", "169.254.169.254:80")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
}
