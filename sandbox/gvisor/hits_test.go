// SPDX-License-Identifier: Apache-2.0

//go:build linux

package gvisor_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/guest"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/gvisor"
)

// The limit that a call failed for is named, and no other; also where nothing is full any
// more at the end.
func TestLimitsHit(t *testing.T) {
	threads := `import threading, time
try:
    for i in range(100): threading.Thread(target=time.sleep, args=(.1,)).start()
except RuntimeError: pass
`
	type limits = []sandbox.LimitName
	for name, tc := range map[string]struct {
		code string
		want limits
	}{
		"nothing":           {"open('/tmp/a', 'w').write('a')", nil},
		"threads":           {threads, limits{"processes"}},
		"its own limit":     {"import resource; resource.setrlimit(resource.RLIMIT_NPROC, (5, 5))\n" + threads, nil},
		"disk":              {"f = open('/home/user/a', 'wb', 0)\ntry:\n    while True: f.write(bytes(1 << 20))\nexcept OSError: f.truncate(0)", limits{"disk"}},
		"tmp":               {"f = open('/tmp/a', 'wb', 0)\ntry:\n    while True: f.write(bytes(1 << 20))\nexcept OSError: f.truncate(0)", limits{"tmp"}},
		"all at once":       {"import os\nf = open('/tmp/a', 'wb')\ntry: os.posix_fallocate(f.fileno(), 0, 1 << 30)\nexcept OSError: pass", limits{"tmp"}},
		"inodes":            {"import os\ntry:\n    for i in range(2000): open(f'/home/user/{i}', 'w').close()\nexcept OSError: pass", limits{"inodes"}},
		"a full device":     {"try:\n    f = open('/dev/full', 'wb', 0); f.write(b'a')\nexcept OSError: pass", nil},
		"killed for memory": {"f = open('/tmp/a', 'wb', 0)\ntry:\n    while True: f.write(bytes(1 << 20))\nexcept OSError: bytearray(b'a' * (1 << 30))", limits{"tmp"}},
	} {
		t.Run(name, func(t *testing.T) {
			spec := fixture(t)
			spec.Limits.Processes, spec.Scratch[0].Size, spec.Scratch[1].Size = 32, 8<<20, 4<<20
			res, err := gvisor.New(gvisor.Options{}).Run(t.Context(), spec, &sandbox.Exec{Argv: []string{"/usr/bin/python3", "-I", "-S", "-c", tc.code}, Dir: "/"})
			if err != nil || !slices.Equal(res.LimitsHit, tc.want) {
				t.Errorf("%+v, %v; want %v", res, err, tc.want)
			}
		})
	}
}

// The kernel's own memory counts as the sandbox's beyond its share. What ends a sandbox for it
// says so: a program that holds little would look in vain for what it has allocated.
func TestKilledForWhatTheKernelHolds(t *testing.T) {
	spec := fixture(t)
	spec.Limits.Memory, spec.Limits.OpenFiles = 32<<20, 4096
	code := `import os, time
while True: # 64 KiB each
    r, w = os.pipe()
    os.set_blocking(w, False)
    os.write(w, bytes(1 << 20))
    time.sleep(.003)
`
	res, err := gvisor.New(gvisor.Options{}).Run(t.Context(), spec, &sandbox.Exec{Argv: []string{"/usr/bin/python3", "-I", "-S", "-c", code}, Dir: "/"})
	if err != nil || res.Resource != sandbox.LimitMemory || !strings.Contains(res.Reason, "gVisor's kernel held") {
		t.Errorf("%+v, %v", res, err)
	}
}

// A sandbox with an agent tells it of the time in which a program ran.
func TestLimitsHitLately(t *testing.T) {
	spec := fixture(t)
	spec.Scratch[1].Size = 4 << 20
	box, err := gvisor.New(gvisor.Options{}).Start(t.Context(), spec)
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
	began := time.Now()
	exit, err := client.Run(t.Context(), &sandbox.Exec{Argv: []string{"/usr/bin/dd", "if=/dev/zero", "of=/tmp/a", "bs=1M"}, Dir: "/", Env: []string{"PATH=/usr/bin"}})
	if err != nil || exit.Code == nil || *exit.Code != 1 {
		t.Fatalf("%+v, %v", exit, err)
	}
	u, err := box.Usage(t.Context())
	if err != nil || !slices.Equal(u.HitSince(began), []sandbox.LimitName{"tmp"}) || len(u.HitSince(time.Now())) > 0 {
		t.Errorf("%+v, %v", u, err)
	}
}
