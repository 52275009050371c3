// SPDX-License-Identifier: Apache-2.0

//go:build linux

package sentry

import (
	"encoding/binary"
	"os"
	"reflect"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/pgalloc"
	sentrytime "gvisor.dev/gvisor/pkg/sentry/time"
	"gvisor.dev/gvisor/pkg/sentry/usage"
)

// The page that gVisor shares with programs has a time once calibrate was
// called, and had none before: a gVisor that does this by itself needs no help.
func TestCalibrate(t *testing.T) {
	fd, err := unix.MemfdCreate("memory", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	mf, err := pgalloc.NewMemoryFile(os.NewFile(uintptr(fd), "memory"), pgalloc.MemoryFileOpts{})
	if err != nil {
		t.Fatal(err)
	}
	defer mf.Destroy()
	fr, err := mf.Allocate(hostarch.PageSize, pgalloc.AllocOpts{Kind: usage.System})
	if err != nil {
		t.Fatal(err)
	}
	defer mf.DecRef(fr)
	ready := func() (monotonic, realtime bool) {
		t.Helper()
		blocks, err := mf.MapInternal(fr, hostarch.Read)
		if err != nil {
			t.Fatal(err)
		}
		page := blocks.Head().ToSlice()
		// A count of writes; ready, base, base, frequency of either clock.
		return binary.NativeEndian.Uint64(page[8:]) == 1, binary.NativeEndian.Uint64(page[40:]) == 1
	}

	tk := kernel.NewTimekeeper()
	tk.SetClocks(sentrytime.NewCalibratedClocks(false), kernel.NewVDSOParamPage(mf, fr))
	defer tk.Destroy()
	if m, r := ready(); m || r {
		t.Errorf("there is a time in the page already: %v, %v", m, r)
	}
	calibrate(tk)
	if m, r := ready(); !m || !r {
		t.Errorf("is there a time in the page? %v, %v", m, r)
	}
	before := time.Now()
	now, err := tk.GetTime(sentrytime.Realtime)
	after := time.Now()
	const slack = int64(10 * time.Millisecond)
	if err != nil || now < before.UnixNano()-slack || now > after.UnixNano()+slack {
		t.Errorf("it is %d (%v), and really %d to %d", now, err, before.UnixNano(), after.UnixNano())
	}
}

func TestStartClocks(t *testing.T) {
	for _, table := range syscallTables {
		number, err := table.LookupNo("clock_gettime")
		if err != nil {
			t.Fatal(err)
		}
		before := reflect.ValueOf(table.Lookup(number)).Pointer()
		startClocks(table)
		if reflect.ValueOf(table.Lookup(number)).Pointer() == before {
			t.Error("clock_gettime starts no clock")
		}
	}
}
