// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/sandbox"
)

// TestTailTampering is the matrix of what someone without the key can do to audit.tail:
// Verify finds it, and nothing is built on it, through the database or without.
func TestTailTampering(t *testing.T) {
	file := func(change func(b []byte, end int64) []byte) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			path := filepath.Join(dir, tailFile)
			b, err := os.ReadFile(path)
			must(t, err)
			must(t, os.WriteFile(path, change(b, sectorOf(t, dir).End), 0o600))
		}
	}
	earlier := []string{"a body", "content", "a frame left out", "two frames swapped"}
	frames := func(dir string, t *testing.T) (list [][]byte) {
		b, err := os.ReadFile(filepath.Join(dir, tailFile))
		must(t, err)
		says := sectorOf(t, dir)
		for at := int64(tailStart); at < says.End; {
			_, n, ok := parseFrame(b[at:], says.Head.Installation)
			if !ok {
				t.Fatal("no frame")
			}
			list = append(list, bytes.Clone(b[at:at+n]))
			at += n
		}
		return list
	}
	put := func(t *testing.T, dir string, list [][]byte, says tailHead) {
		b := append(make([]byte, tailStart), bytes.Join(list, nil)...)
		must(t, os.WriteFile(filepath.Join(dir, tailFile), b, 0o600))
		says.End = int64(len(b))
		if len(list) > 0 {
			says.Last = says.End - int64(len(list[len(list)-1]))
		}
		putSector(t, dir, says)
	}
	for name, do := range map[string]func(t *testing.T, dir string){
		"removed":   func(t *testing.T, dir string) { must(t, os.Remove(filepath.Join(dir, tailFile))) },
		"emptied":   file(func([]byte, int64) []byte { return nil }),
		"cut off":   file(func(b []byte, end int64) []byte { return b[:end-1] }),
		"no frames": file(func(b []byte, end int64) []byte { return b[:tailStart] }),
		"zeros":     file(func(b []byte, _ int64) []byte { return make([]byte, len(b)) }),
		"a body":    file(func(b []byte, _ int64) []byte { return bytes.Replace(b, []byte("uid:1000"), []byte("uid:1001"), 1) }),
		"content":   file(func(b []byte, _ int64) []byte { return bytes.Replace(b, []byte("out of b"), []byte("out of z"), 1) }),
		"a sector of nothing": file(func(b []byte, _ int64) []byte {
			return append(bytes.Repeat([]byte(" "), tailStart), b[tailStart:]...)
		}),
		"the last head's signature": file(func(b []byte, end int64) []byte { b[end-1] ^= 1; return b }),
		"the last frame cut off": func(t *testing.T, dir string) {
			says, list := sectorOf(t, dir), frames(dir, t)
			put(t, dir, list[:len(list)-1], says)
		},
		"the last frame cut off, with its head": func(t *testing.T, dir string) {
			says, list := older(t, dir), frames(dir, t)
			put(t, dir, list[:len(list)-1], says)
		},
		"a frame left out": func(t *testing.T, dir string) {
			says, list := sectorOf(t, dir), frames(dir, t)
			put(t, dir, slices.Delete(list, 1, 2), says)
		},
		"two frames swapped": func(t *testing.T, dir string) {
			says, list := sectorOf(t, dir), frames(dir, t)
			list[0], list[1] = list[1], list[0]
			put(t, dir, list, says)
		},
		"signed with another key": func(t *testing.T, dir string) {
			says, list := sectorOf(t, dir), frames(dir, t)
			frame, with := forged(t, says)
			put(t, dir, append(list, frame), with)
		},
		"another key, as if it had not been said yet": func(t *testing.T, dir string) {
			says, list := sectorOf(t, dir), frames(dir, t)
			frame, _ := forged(t, says)
			put(t, dir, append(list, frame), says)
		},
		"a link": func(t *testing.T, dir string) {
			path := filepath.Join(dir, tailFile)
			must(t, os.Rename(path, path+".x"))
			must(t, os.Symlink(path+".x", path))
		},
		"a directory": func(t *testing.T, dir string) {
			path := filepath.Join(dir, tailFile)
			must(t, os.Remove(path))
			must(t, os.Mkdir(path, 0o700))
		},
		"a pipe": func(t *testing.T, dir string) {
			path := filepath.Join(dir, tailFile)
			must(t, os.Remove(path))
			must(t, unix.Mkfifo(path, 0o600))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir, _ := recordWithTail(t)
			do(t, dir)
			if rep := verify(t, dir); rep.OK() {
				t.Error("Verify finds nothing")
			}
			if err := appendOne(dir); !errors.Is(err, sandbox.ErrUnavailable) || !isDamage(err) {
				t.Errorf("appending to it: %v", err)
			}
			// As with the database, a commit looks at the last record only, and at no content.
			_, err := openTail(t, dir, nil).Begin(ctx, intent("x"))
			if before := slices.Contains(earlier, name); before && err != nil || !before && !errors.Is(err, sandbox.ErrUnavailable) {
				t.Errorf("appending to the tail: %v", err)
			}
			if rep := verify(t, dir); rep.OK() {
				t.Error("after that Verify finds nothing")
			}
			if n := count(t, dir); n != 3 {
				t.Errorf("the database holds %d records", n)
			}
		})
	}
}

// forged is a frame that is signed with some key, and what the sector would say with it.
func forged(t *testing.T, says tailHead) (frame []byte, with tailHead) {
	t.Helper()
	in := intent("forged")
	a, err := in.record("aud_forged")
	must(t, err)
	l := &Log{key: newKey(t), inst: says.Head.Installation, now: clock()}
	next, err := l.seal(says.Head, []*record{&a.record})
	must(t, err)
	says.Head = next
	return newFrame([]*addition{a}, next).encode(), says
}

// TestTailForgedBehind puts a frame with another key's signature where one lies that its
// writer had no time to speak of: it is passed over.
func TestTailForgedBehind(t *testing.T) {
	dir, ids := recordWithTail(t)
	says := sectorOf(t, dir)
	f, err := os.OpenFile(filepath.Join(dir, tailFile), os.O_WRONLY, 0)
	must(t, err)
	frame, _ := forged(t, says)
	_, err = f.WriteAt(frame, says.End)
	must(t, errors.Join(err, f.Close()))
	must(t, settle(dir))
	rep := verify(t, dir)
	wantOK(t, rep)
	if rep.Records != 7 {
		t.Errorf("%d records", rep.Records)
	}
	wantIDs(t, dir, ids)
}

// TestTailForgedHeads puts a head with another key's signature where nobody looks at
// records: into the sector of a tail that holds none, and into audit.head.
func TestTailForgedHeads(t *testing.T) {
	dir, _ := recordWithTail(t)
	must(t, settle(dir))
	_, says := forged(t, sectorOf(t, dir))
	line, err := headLine(says.Head)
	must(t, errors.Join(err, os.WriteFile(filepath.Join(dir, headFile), line, 0o600)))
	putSector(t, dir, says)
	if _, err := openTail(t, dir, nil).Begin(ctx, intent("x")); !isDamage(err) {
		t.Errorf("appending to the tail: %v", err)
	}
	if rep := verify(t, dir); rep.OK() {
		t.Error("Verify finds nothing")
	}
}

// TestTailOfAnotherHistory puts the tail, or that and audit.head, of one history beside
// the database of another, which went on from the same record: who has the key made both.
func TestTailOfAnotherHistory(t *testing.T) {
	for _, names := range [][]string{{tailFile}, {tailFile, headFile}} {
		for calls := 1; calls < 4; calls++ {
			dir, _ := recordWithTail(t)
			must(t, settle(dir))
			other := copyLog(t, dir)
			for range 2 {
				must(t, appendOne(dir))
			}
			for range calls {
				call(t, openTail(t, other, nil), "other")
			}
			must(t, copyInto(other, dir, names...))
			if rep := verify(t, dir); rep.OK() {
				t.Errorf("%q with %d calls: Verify finds nothing", names, calls)
			}
			if err := appendOne(dir); !isDamage(err) {
				t.Errorf("%q with %d calls: appending to it: %v", names, calls, err)
			}
		}
	}
}

// TestTailCutOff cuts the record off where the files themselves say that it once ended:
// each frame, and the database, hold a head that was signed. That is not seen, as
// SECURITY.md says, but by who kept a head elsewhere.
func TestTailCutOff(t *testing.T) {
	dir, _ := recordWithTail(t)
	l, err := Open(ctx, Options{Dir: copyLog(t, dir), ReadOnly: true})
	must(t, err)
	kept, err := l.Checkpoint(ctx)
	must(t, errors.Join(err, l.Close()))
	for cut := older(t, dir); cut.End > tailStart; cut = older(t, dir) {
		putSector(t, dir, cut)
		must(t, os.Truncate(filepath.Join(dir, tailFile), cut.End))
		to := copyLog(t, dir)
		if rep := verify(t, to); rep.OK() {
			t.Errorf("up to byte %d: audit.head says more, and Verify finds nothing", cut.End)
		}
		line, err := headLine(cut.Head)
		must(t, errors.Join(err, os.WriteFile(filepath.Join(dir, headFile), line, 0o600)))
		to = copyLog(t, dir)
		wantOK(t, verify(t, to))
		l := open(t, to)
		rep, err := l.Verify(ctx, kept)
		must(t, errors.Join(err, l.Close()))
		if rep.OK() {
			t.Errorf("up to byte %d: the head that was kept says more, and Verify finds nothing", cut.End)
		}
	}
}

// TestTailEveryByte changes each byte of the tail: nothing is taken for what it was not.
func TestTailEveryByte(t *testing.T) {
	dir, ids := recordWithTail(t)
	end := sectorOf(t, dir).End
	step := int64(7)
	if testing.Short() {
		step = 61
	}
	for at := int64(0); at < end; at += step {
		at := at
		to := copyLog(t, dir)
		path := filepath.Join(to, tailFile)
		b, err := os.ReadFile(path)
		must(t, err)
		b[at] ^= 0x20
		must(t, os.WriteFile(path, b, 0o600))
		if rep := verify(t, to); rep.OK() {
			wantIDs(t, to, ids)
			if rep.Records != 7 {
				t.Errorf("byte %d: %d records", at, rep.Records)
			}
		}
		must(t, os.RemoveAll(to))
		if t.Failed() {
			t.Fatalf("byte %d", at)
		}
	}
}

// TestTailHostileCounts has frames say that they hold a great deal: who reads them does
// not take more memory than they are long.
func TestTailHostileCounts(t *testing.T) {
	in := intent("x")
	a, err := in.record("aud_x")
	must(t, err)
	l := &Log{key: newKey(t), inst: "ca1550", now: clock()}
	head, err := l.seal(Checkpoint{Link: strings.Repeat("0", 64)}, []*record{&a.record})
	must(t, err)
	b := newFrame([]*addition{a}, head).encode()
	empty := make([]byte, 16<<20) // fields of no length
	for _, at := range []int{len(frameDomain) + 8, bytes.LastIndex(b, a.body) + len(a.body)} {
		hostile := slices.Concat(b[:at], binary.BigEndian.AppendUint32(nil, uint32(len(empty)/4)), b[at+4:], empty)
		binary.BigEndian.PutUint64(hostile[len(frameDomain):], uint64(len(hostile)-len(frameDomain)-8))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if _, _, ok := parseFrame(hostile, "ca1550"); ok {
			t.Error("it is taken for a frame")
		}
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; took > 1<<20 {
			t.Errorf("the count at %d: %d KiB", at, took>>10)
		}
	}
}

// TestTailHuge: a tail with a great hole is looked at as far as one may go, and what was
// appended is taken in.
func TestTailHuge(t *testing.T) {
	dir, ids := recordWithTail(t)
	must(t, os.Truncate(filepath.Join(dir, tailFile), 1<<40))
	wantOK(t, verify(t, dir))
	wantIDs(t, dir, ids)
	info, err := os.Stat(filepath.Join(dir, tailFile))
	must(t, err)
	if info.Size() > 4*mostTail {
		t.Errorf("it is left with %d bytes", info.Size())
	}
	frame := make([]byte, tailRead)
	h, err := open(t, dir).holdTail(ctx)
	must(t, err)
	defer h.release()
	if h.append(frame, h.says.Head) == nil {
		t.Error("a commit was appended that is not read again")
	}
}
