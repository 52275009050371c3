// SPDX-License-Identifier: Apache-2.0

//go:build linux

package microvm_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/guest/boot"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/microvm"
	"github.com/caisson-run/caisson/sandbox/microvm/firecrackertest"
)

// A Firecracker in hostile hands puts what it likes where it is to write its machine. Caisson
// reads a file of that directory itself, of a bounded length, and no other.
func TestHostileSnapshot(t *testing.T) {
	for name, tt := range map[string]struct {
		devices []byte
		make    func(at string, memory *os.File) error
		says    string // the guest, to what it is ordered
		want    string
	}{
		"as it should":        {devices: []byte("x")},
		"nothing":             {want: "no such file"},
		"an empty file":       {devices: []byte{}, want: "no file of at most"},
		"a long file":         {devices: make([]byte, 1<<20), want: "no file of at most"},
		"a file of holes":     {devices: []byte("x"), make: func(at string, _ *os.File) error { return os.Truncate(at, 1<<40) }, want: "no file of at most"},
		"a pipe":              {make: func(at string, _ *os.File) error { return unix.Mkfifo(at, 0o600) }, want: "no file of at most"},
		"a directory":         {make: func(at string, _ *os.File) error { return os.Mkdir(at, 0o700) }, want: "no file of at most"},
		"a link":              {make: func(at string, _ *os.File) error { return os.Symlink("/etc/passwd", at) }, want: "symbolic links"},
		"a guest that sent":   {says: `"sent": 5`, devices: []byte("x"), want: "of 5 bytes"},
		"a guest that lies":   {says: `"sent": -1`, devices: []byte("x"), want: "of -1 bytes"},
		"a guest with a port": {says: `"error": "a port"`, devices: []byte("x"), want: "a port"},
		"little memory":       {devices: []byte("x"), make: func(_ string, m *os.File) error { return m.Truncate(5) }, want: "not all of the machine's memory was written"},
	} {
		t.Run(name, func(t *testing.T) {
			dial := serve(t, &firecrackertest.API{Version: "1.15.0"})
			if err := microvm.StartFirecracker(t.Context(), dial); err != nil {
				t.Fatal(err)
			}
			memory, dir := savePlace(t, tt.devices)
			if tt.make != nil {
				if err := tt.make(filepath.Join(dir.Name(), "devices"), memory); err != nil {
					t.Fatal(err)
				}
			}
			guest := obedient(t)
			if tt.says != "" {
				guest = guestSays(t, func(o boot.Order) string { return fmt.Sprintf("{\"id\": %d, %s}\n", o.ID, tt.says) })
			}
			_, err := microvm.SaveFirecracker(t.Context(), dial, guest, memory, dir, io.Discard)
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %q", err, tt.want)
			}
		})
	}
}

// What was written of a machine takes no room where Firecracker fails in the middle, and one
// that could not be stopped again is not let be: it is no longer what it is taken for.
func TestSaveFails(t *testing.T) {
	memory, dir := savePlace(t, []byte("x"))
	full := errors.New("no space left")
	pauses := true
	dial := serve(t, &firecrackertest.API{Version: "1.15.0",
		Create: func(*firecrackertest.Machine, string, string) error {
			_, err := memory.WriteAt(bytes.Repeat([]byte("x"), 512<<10), 0)
			return errors.Join(err, full)
		},
		State: func(paused bool) error {
			if paused && !pauses {
				return errors.New("it does not stop")
			}
			return nil
		}})
	if err := microvm.StartFirecracker(t.Context(), dial); err != nil {
		t.Fatal(err)
	}
	_, err := microvm.SaveFirecracker(t.Context(), dial, obedient(t), memory, dir, io.Discard)
	if err == nil || !strings.Contains(err.Error(), full.Error()) || errors.Is(err, microvm.ErrStalled) {
		t.Error(err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(memory.Fd()), &st); err != nil || st.Blocks != 0 || st.Size != 1<<20 {
		t.Errorf("there are %d blocks of %d bytes, %v", st.Blocks, st.Size, err)
	}
	pauses = false
	if _, err := microvm.SaveFirecracker(t.Context(), dial, obedient(t), memory, dir, io.Discard); !errors.Is(err, microvm.ErrStalled) {
		t.Errorf("one that runs on: %v", err)
	}
}

// What is not as it was written is not loaded: Firecracker trusts it.
func TestFalseMemoryIsNotLoaded(t *testing.T) {
	loaded := false
	dial := serve(t, &firecrackertest.API{Version: "1.15.0", Load: func(string, string) (*firecrackertest.Machine, error) {
		loaded = true
		return nil, errors.New("Failed to get snapshot state from file: Failed to load snapshot state from file: no such machine")
	}})
	broken := errors.New("not as it was written")
	if err := microvm.LoadFirecracker(t.Context(), dial, io.MultiReader(strings.NewReader("memory"), failingReader{broken}), 0, 0); !errors.Is(err, broken) || loaded {
		t.Errorf("%v; it was loaded: %v", err, loaded)
	}
	if err := microvm.LoadFirecracker(t.Context(), dial, strings.NewReader("memory"), 0, 0); !errors.Is(err, microvm.ErrRefused) || !strings.Contains(err.Error(), "no such machine") || !loaded {
		t.Errorf("%v; it was loaded: %v", err, loaded)
	}
}

// What may pass is no reason to give memory up: that is refused for good only where Firecracker
// says that it does not read it, or its KVM does not take it.
func TestRefusedForGood(t *testing.T) {
	for text, forGood := range map[string]bool{
		"Failed to get snapshot state from file: Failed to load snapshot state from file: CRC64 validation failed":                                                    true,
		"Failed to get snapshot state from file: Failed to load snapshot state from file: Invalid data version: 9.0.0":                                                true,
		"Invalid snapshot state: No memory region defined.":                                                                                                           true,
		"Failed to build microVM from snapshot: Failed to restore vCPUs: Failed to set all KVM MSRs for this vCPU. Only a partial write was done.":                    true,
		"Failed to build microVM from snapshot: Failed to restore vCPUs: Failed to set KVM vcpu cpuid: Invalid argument (os error 22)":                                true,
		"Failed to build microVM from snapshot: Failed to restore vCPUs: Failed to set KVM vcpu cpuid: Cannot allocate memory (os error 12)":                          false,
		"Failed to get snapshot state from file: Failed to open snapshot file: Too many open files (os error 24)":                                                     false,
		"Failed to get snapshot state from file: Failed to load snapshot state from file: IO Error: Input/output error (os error 5)":                                  false,
		"Failed to load guest memory: Error creating guest memory from file: Failed to restore guest memory: Cannot allocate memory (os error 12)":                    false,
		"Failed to build microVM from snapshot: Failed to create microVM and vCPUs: Cannot create KVM file descriptor: Device or resource busy (os error 16)":         false,
		"Failed to build microVM from snapshot: Failed to restore devices: Error restoring MMIO devices: Net: Open tap device failed: Invalid argument (os error 22)": false,
		"something that it has never said before": false,
	} {
		dial := serve(t, &firecrackertest.API{Version: "1.15.0", Load: func(string, string) (*firecrackertest.Machine, error) { return nil, errors.New(text) }})
		if err := microvm.LoadFirecracker(t.Context(), dial, strings.NewReader("memory"), 0, 0); err == nil || errors.Is(err, microvm.ErrRefused) != forGood {
			t.Errorf("%v; want it refused for good: %v", err, forGood)
		}
	}
}

type failingReader struct{ err error }

func (f failingReader) Read([]byte) (int, error) { return 0, f.err }

// All disks together never do more than what was asked for, and hardly less, whatever the size
// of their requests: of bytes, up to the 4 MiB that a guest makes; of operations one each.
func TestBuckets(t *testing.T) {
	for _, disks := range []int{1, 2, 3} {
		for _, all := range []int64{1, 2, 3, 7, 25, 999, 4096, 1 << 20, 10 << 20, 1<<30 + 1, 1 << 50} {
			bytes, ops := microvm.Buckets(all, disks)
			for most, b := range map[int64][2]int64{4 << 20: bytes, 1: ops} {
				size, refill := b[0], b[1]
				if size < 1 || refill < 1 {
					t.Fatalf("%d of %d disks: %d in %d ms is no bound", all, disks, size, refill)
				}
				if rate := float64(disks) * float64(size) * 1000 / float64(refill); rate > float64(all) || rate < 0.7*float64(all) {
					t.Errorf("%d of %d disks: %d in %d ms is %.1f in a second", all, disks, size, refill, rate)
				}
				if size > max(all/int64(disks)/10, most) {
					t.Errorf("%d of %d disks: %d at once", all, disks, size)
				}
				for _, request := range []int64{1, 4 << 10, 128 << 10, 1280 << 10, 4 << 20} {
					if request <= most && taken(float64(size), float64(refill), float64(request)) > 1.001 {
						t.Errorf("%d of %d disks: requests for %d go beyond %d in %d ms", all, disks, request, size, refill)
					}
				}
			}
		}
	}
	if bytes, ops := microvm.Buckets(0, 2); bytes != [2]int64{} || ops != [2]int64{} {
		t.Errorf("no bound is %v and %v", bytes, ops)
	}
}

// taken is how much of a bucket's rate equal requests have, one after the other, as Firecracker
// counts: what is larger than the bucket empties it and waits for what was lacking, in whole
// milliseconds, in which the bucket is filled. 0 of these are no wait: nothing is done again.
func taken(size, refill, request float64) float64 {
	var now, done float64 // in ms
	budget := 0.0
	for range 1000 {
		wait := max(0, (request-budget)/size*refill)
		if request > size {
			if wait = math.Floor(wait); wait == 0 {
				return math.Inf(1)
			}
			budget = min(size, wait*size/refill)
		}
		now, done = now+wait, done+request
	}
	return done / now / (size / refill)
}

// Memory that is free takes no room, and the file is the same.
func TestSparseMemory(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "memory"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	random := rand.New(rand.NewPCG(1, 2))
	all := make([]byte, 8<<20)
	all[0], all[3<<20], all[3<<20+4095], all[5<<20+1] = 1, 2, 3, 4
	var pieces [][]byte
	for at := 0; at < len(all); {
		n := min(len(all)-at, []int{1, 4095, 4096, 32 << 10, 100_000}[random.IntN(5)])
		pieces = append(pieces, all[at:at+n])
		at += n
	}
	if err := microvm.Kept(f, pieces...); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(f.Name())
	if err != nil || !bytes.Equal(got, all) {
		t.Errorf("%d bytes are another %d, %v", len(all), len(got), err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil || st.Blocks*512 > 1<<20 {
		t.Errorf("it takes %d blocks, %v", st.Blocks, err)
	}
}

// What a machine's memory is written to is a file of its length, and neither that nor another
// can be made longer than it or the disk; one that is not to be written down has none.
func TestPlaceOfMemory(t *testing.T) {
	for _, writes := range []bool{false, true} {
		dir := t.TempDir()
		limit, mounts, err := microvm.FirecrackerBox(&sandbox.Spec{StateDir: dir, Snapshots: writes}, 64)
		if err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(filepath.Join(dir, "memory"))
		if !writes {
			if !os.IsNotExist(err) || limit != 0 || strings.Contains(mounts, "memory") {
				t.Errorf("one that is not to be written down: %v, %d, %s", err, limit, mounts)
			}
			continue
		}
		if err != nil || info.Size() != 64<<20 || info.Mode() != 0o600 || limit != 64<<20 || !strings.Contains(mounts, "/run/memory rw") {
			t.Errorf("%+v, %v, %d, %s", info, err, limit, mounts)
		}
	}
}
