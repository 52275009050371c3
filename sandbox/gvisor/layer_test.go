// SPDX-License-Identifier: Apache-2.0

//go:build linux

package gvisor_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/caisson-run/caisson/guest"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/drivertest"
	"github.com/caisson-run/caisson/sandbox/gvisor"
)

func TestChangesOfAnotherLifeAsNobody(t *testing.T) {
	drivertest.AsUser(t, 65534, "TestChangesOfAnotherLife")
}

// A layer is there for the next owner, too, and in a sandbox that goes on from a snapshot.
func TestChangesOfAnotherLife(t *testing.T) {
	dir := project(t)
	spec := func() *sandbox.Spec {
		s := fixture(t)
		s.Snapshots, s.Outlives = true, true
		s.Mounts = []sandbox.Mount{{Source: handle(t, dir), Name: dir, Target: "/tmp", Access: sandbox.CopyOnWrite, Dir: true}}
		s.Scratch = s.Scratch[:1]
		return s
	}
	first := spec()
	c, box := living(t, first, guest.Options{User: first.User})
	if got := says(t, c, "echo changed > /tmp/data.csv"); got != "" {
		t.Errorf("it says %q", got)
	}
	snapshot := filepath.Join(t.TempDir(), "snapshot")
	if err := os.Mkdir(snapshot, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := box.(sandbox.Snapshotter).Snapshot(t.Context(), snapshot, false); err != nil {
		t.Fatal(err)
	}
	changed(t, "after the snapshot", box)
	survivor := box.(sandbox.Survivor)
	if err := errors.Join(survivor.Outlive(time.Minute, time.Time{}), survivor.Leave()); err != nil {
		t.Fatal(err)
	}
	d := gvisor.New(gvisor.Options{})
	adopted, err := d.Adopt(t.Context(), first)
	if err != nil {
		t.Fatal(err)
	}
	changed(t, "adopted", adopted.Instance)
	if err := adopted.Destroy(t.Context()); err != nil {
		t.Error(err)
	}
	if err := adopted.Instance.(sandbox.ChangeReader).ReadChanges(t.Context(), "/tmp", io.Discard); !errors.Is(err, sandbox.ErrUnavailable) {
		t.Errorf("of one that has ended: %v", err)
	}
	again, err := d.Restore(t.Context(), spec(), snapshot)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Destroy(t.Context())
	changed(t, "from the snapshot", again)
}

// changed demands that one file was.
func changed(t *testing.T, when string, box sandbox.Instance) {
	t.Helper()
	var layer bytes.Buffer
	if err := box.(sandbox.ChangeReader).ReadChanges(t.Context(), "/tmp", &layer); err != nil {
		t.Fatalf("%s: %v", when, err)
	}
	in := tar.NewReader(&layer)
	h, err := in.Next()
	if err != nil {
		t.Fatalf("%s: %v", when, err)
	}
	data, err := io.ReadAll(in)
	if h.Name != "data.csv" || string(data) != "changed\n" || err != nil {
		t.Errorf("%s: %s has %q (%v)", when, h.Name, data, err)
	}
	if h, err := in.Next(); err != io.EOF {
		t.Errorf("%s: there is more: %v, %v", when, h, err)
	}
}
