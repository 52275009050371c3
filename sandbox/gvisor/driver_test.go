// SPDX-License-Identifier: Apache-2.0

//go:build linux

package gvisor_test

import (
	"bytes"
	"crypto/rand"
	"os"
	"path/filepath"
	"testing"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/guest"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/drivertest"
	"github.com/caisson-run/caisson/sandbox/gvisor"
)

func TestMain(m *testing.M) {
	caisson.Reexec()
	drivertest.UseDisk()
	os.Exit(m.Run())
}

// fixture is the smallest one in which the host's programs run.
func fixture(t *testing.T) *sandbox.Spec {
	t.Helper()
	dir := t.TempDir()
	for _, d := range []string{"usr", "etc", "proc", "sys", "dev", "tmp", "home/user"} {
		if err := os.MkdirAll(filepath.Join(dir, "root", d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, l := range []string{"bin", "lib", "lib64", "sbin"} {
		if err := os.Symlink("usr/"+l, filepath.Join(dir, "root", l)); err != nil {
			t.Fatal(err)
		}
	}
	state := filepath.Join(dir, "state")
	if err := os.Mkdir(state, 0o700); err != nil {
		t.Fatal(err)
	}
	limits := sandbox.DefaultLimits()
	return &sandbox.Spec{
		ID: "sbx_" + rand.Text(), // others may run this test at the same time
		Root: sandbox.Root{
			Dir:   open(t, filepath.Join(dir, "root")),
			Binds: []sandbox.Mount{{Source: open(t, "/usr"), Name: "/usr", Target: "/usr", Dir: true}},
		},
		Scratch: []sandbox.Scratch{
			{Target: "/home/user", Size: limits.Disk, Inodes: 1000},
			{Target: "/tmp", Size: limits.Tmp, Sticky: true},
		},
		User: sandbox.DefaultUser(), Limits: limits, StateDir: state,
	}
}

func open(t *testing.T, name string) *os.File {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func TestRunIsSomebodyElseOnAReadOnlyRoot(t *testing.T) {
	var out, errs bytes.Buffer
	script := `id -u; grep CapEff /proc/self/status; touch /usr/x; touch /x; echo ok > /home/user/f && cat /home/user/f; exit 7`
	res, err := gvisor.New(gvisor.Options{DebugDir: os.Getenv("DBG")}).Run(t.Context(), fixture(t), &sandbox.Exec{
		Argv: []string{"sh", "-c", script}, Dir: "/home/user", Env: []string{"PATH=/usr/bin:/bin"},
		Stdout: &out, Stderr: &errs,
	})
	if err != nil {
		t.Fatal(err)
	}
	if res.ExitCode == nil || *res.ExitCode != 7 || res.Status != sandbox.StatusError {
		t.Errorf("result %+v, want exit code 7", res)
	}
	if want := "1000\nCapEff:\t0000000000000000\nok\n"; out.String() != want {
		t.Errorf("stdout %q, want %q", out.String(), want)
	}
	if n := bytes.Count(errs.Bytes(), []byte("cannot touch")); n != 2 {
		t.Errorf("stderr %q, want two refusals", errs.String())
	}
}

func TestInstanceRunsThroughTheAgent(t *testing.T) {
	box, err := gvisor.New(gvisor.Options{DebugDir: os.Getenv("DBG")}).Start(t.Context(), fixture(t))
	if err != nil {
		t.Fatal(err)
	}
	defer box.Destroy(t.Context())
	conn, err := box.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	client, err := guest.NewClient(conn, guest.Options{User: sandbox.DefaultUser(), Limits: sandbox.DefaultLimits()})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	var out bytes.Buffer
	exit, err := client.Run(t.Context(), &sandbox.Exec{
		Argv: []string{"sh", "-c", "id -u; grep -E 'CapEff|NoNewPrivs' /proc/self/status; exit 3"}, Dir: "/home/user",
		Env: []string{"PATH=/usr/bin:/bin"}, Stdout: &out,
	})
	if err != nil {
		t.Fatal(err)
	}
	if exit.Code == nil || *exit.Code != 3 {
		t.Errorf("exit %+v, want 3", exit)
	}
	if want := "1000\nCapEff:\t0000000000000000\nNoNewPrivs:\t1\n"; out.String() != want {
		t.Errorf("stdout %q, want %q", out.String(), want)
	}
	if _, err := box.Usage(t.Context()); err != nil {
		t.Error(err)
	}
	if err := box.Destroy(t.Context()); err != nil {
		t.Error(err)
	}
	<-box.Ended()
}
