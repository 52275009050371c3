// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// oldTail is testdata/tail/audit.tail, which the last caisson that had such a file wrote.
func oldTail(t testing.TB) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", "tail", tailFile))
	must(t, err)
	return b
}

func oldSector(t testing.TB, b []byte) tailSector {
	t.Helper()
	s, ok := parseTailSector(b)
	if !ok || s.End == 0 {
		t.Fatalf("%q", b[:tailStart])
	}
	return s
}

// oldFrames are the frames of a tail.
func oldFrames(t testing.TB, b []byte) (list [][]byte) {
	t.Helper()
	s := oldSector(t, b)
	for at := int64(tailStart); at < s.End; {
		_, n, ok := parseTailFrame(b[at:], s.Head.Installation)
		if !ok {
			t.Fatal("no frame")
		}
		list = append(list, bytes.Clone(b[at:at+n]))
		at += n
	}
	return list
}

// encodeFrame is f as it lies in the file.
func encodeFrame(f *tailFrame) []byte {
	b := append([]byte(frameDomain), make([]byte, 8)...)
	start := len(b)
	b = binary.BigEndian.AppendUint32(b, uint32(len(f.records)))
	for i, r := range f.records {
		for _, field := range [][]byte{r.canonical(), r.signature, r.body} {
			b = appendField(b, field)
		}
		b = binary.BigEndian.AppendUint32(b, uint32(len(f.kept[i])))
		for _, content := range f.kept[i] {
			b = appendField(b, content)
		}
	}
	b = binary.BigEndian.AppendUint64(b, uint64(f.head.Time.UnixNano()))
	signature, _ := hex.DecodeString(f.head.Signature)
	b = appendField(b, signature)
	binary.BigEndian.PutUint64(b[start-8:], uint64(len(b)-start))
	return b
}

// FuzzTailFrame: what is read as a frame is one, to the byte.
func FuzzTailFrame(f *testing.F) {
	b := oldTail(f)
	installation := oldSector(f, b).Head.Installation
	for _, frame := range oldFrames(f, b) {
		f.Add(append(frame, "behind it"...))
	}
	f.Add([]byte(frameDomain))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, n, ok := parseTailFrame(b, installation)
		if !ok {
			return
		}
		if n < 1 || n > int64(len(b)) {
			t.Fatalf("%d of %d bytes", n, len(b))
		}
		if again := encodeFrame(got); !bytes.Equal(again, b[:n]) {
			t.Errorf("%q, then %q", b[:n], again)
		}
		got.chained()
		got.complete()
	})
}

// FuzzTailSector: what is read as a sector names an end behind it, or is blank.
func FuzzTailSector(f *testing.F) {
	f.Add(oldTail(f)[:tailStart])
	f.Add(make([]byte, tailStart))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		s, ok := parseTailSector(b)
		if blank := len(bytes.Trim(b[:min(len(b), tailStart)], "\x00")) == 0; ok && !blank && s.End < tailStart || blank && (!ok || s != tailSector{}) {
			t.Errorf("%q: %+v, %v", b, s, ok)
		}
	})
}

// TestTailHostileCounts has frames say that they hold a great deal. Their reader takes no
// more memory than they are long.
func TestTailHostileCounts(t *testing.T) {
	tail := oldTail(t)
	s := oldSector(t, tail)
	b := oldFrames(t, tail)[0]
	f, _, _ := parseTailFrame(b, s.Head.Installation)
	body := f.records[0].body
	empty := make([]byte, 16<<20) // fields of no length
	for _, at := range []int{len(frameDomain) + 8, bytes.Index(b, body) + len(body)} {
		hostile := slices.Concat(b[:at], binary.BigEndian.AppendUint32(nil, uint32(len(empty)/4)), b[at+4:], empty)
		binary.BigEndian.PutUint64(hostile[len(frameDomain):], uint64(len(hostile)-len(frameDomain)-8))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if _, _, ok := parseTailFrame(hostile, s.Head.Installation); ok {
			t.Error("it is taken for a frame")
		}
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; took > 1<<20 {
			t.Errorf("the count at %d: %d KiB", at, took>>10)
		}
	}
}

// withSector is a tail whose sector says something else.
func withSector(t testing.TB, b []byte, s tailSector) []byte {
	t.Helper()
	line, err := padded(s)
	must(t, err)
	return append(line, b[tailStart:]...)
}

// tailOf is a tail of frames, whose sector promises a head at their end.
func tailOf(t testing.TB, head Checkpoint, frames ...[]byte) []byte {
	t.Helper()
	b := append(make([]byte, tailStart), bytes.Join(frames, nil)...)
	return withSector(t, b, tailSector{End: int64(len(b)), Head: head})
}

// forgedFrame goes on from a head, and is signed with some other key.
func forgedFrame(t testing.TB, from Checkpoint) (frame []byte, head Checkpoint) {
	t.Helper()
	in := intent("forged")
	a, err := in.record("aud_forged")
	must(t, err)
	l := &Log{key: newKey(t), inst: from.Installation, now: clock()}
	head, err = l.seal(from, []*record{&a.record})
	must(t, err)
	return encodeFrame(&tailFrame{records: []*record{&a.record}, kept: [][][]byte{a.contents()}, head: head}), head
}

// replaced is b with a text replaced, which has to be there.
func replaced(t testing.TB, b []byte, text, by string) []byte {
	t.Helper()
	if !strings.Contains(string(b), text) {
		t.Fatalf("%q is not in it", text)
	}
	return bytes.Replace(b, []byte(text), []byte(by), 1)
}
