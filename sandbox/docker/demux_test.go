// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"
)

// frame is one frame of a multiplexed connection.
func frame(kind byte, data []byte) []byte {
	b := []byte{kind, 0, 0, 0, 0, 0, 0, 0}
	binary.BigEndian.PutUint32(b[4:], uint32(len(data)))
	return append(b, data...)
}

// moody cuts reads into pieces and fails now and then as a deadline does.
type moody struct {
	r io.Reader
	t *rapid.T
}

func (m moody) Read(p []byte) (int, error) {
	if rapid.IntRange(0, 3).Draw(m.t, "mood") == 0 {
		return 0, os.ErrDeadlineExceeded
	}
	return m.r.Read(p[:min(len(p), rapid.IntRange(1, 20).Draw(m.t, "piece"))])
}

func TestDemuxSortsStreams(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var wire, stdout, stderr bytes.Buffer
		for range rapid.IntRange(0, 8).Draw(t, "frames") {
			data := rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "data")
			kind := rapid.SampledFrom([]byte{frameStdin, frameStdout, frameStderr}).Draw(t, "kind")
			wire.Write(frame(kind, data))
			if kind == frameStderr {
				stderr.Write(data)
			} else {
				stdout.Write(data)
			}
		}
		var log, got bytes.Buffer
		d := &demux{r: moody{&wire, t}, log: &log}
		buf := make([]byte, rapid.IntRange(1, 64).Draw(t, "buffer"))
		for {
			n, err := d.Read(buf)
			got.Write(buf[:n])
			if err == io.EOF {
				break
			}
			if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(got.Bytes(), stdout.Bytes()) || !bytes.Equal(log.Bytes(), stderr.Bytes()) {
			t.Errorf("stdout %q, want %q; stderr %q, want %q", &got, &stdout, &log, &stderr)
		}
	})
}

func TestDemuxRefusesNonsense(t *testing.T) {
	for name, b := range map[string][]byte{
		"an unknown stream":     frame(9, []byte("x")),
		"padding that is none":  {1, 1, 0, 0, 0, 0, 0, 1, 'x'},
		"not frames at all":     []byte("HTTP/1.1 200 OK\r\n"),
		"an end in a head":      {1, 0, 0},
		"an end within a frame": frame(1, []byte("four"))[:10],
	} {
		d := &demux{r: bytes.NewReader(b), log: io.Discard}
		if _, err := io.ReadAll(d); err == nil {
			t.Errorf("%s passes", name)
		}
		if n, err := d.Read(make([]byte, 9)); n > 0 || err == nil {
			t.Errorf("%s: it goes on with %d bytes", name, n)
		}
	}
}

// A frame that claims 4 GiB costs what arrives of it.
func TestDemuxAllocatesWhatArrives(t *testing.T) {
	head := []byte{1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff}
	buf := make([]byte, 32)
	if n := testing.AllocsPerRun(100, func() {
		d := &demux{r: io.MultiReader(bytes.NewReader(head), bytes.NewReader([]byte("little"))), log: io.Discard}
		_, _ = d.Read(buf)
	}); n > 8 {
		t.Errorf("%v allocations", n)
	}
}

func FuzzDemux(f *testing.F) {
	f.Add(frame(1, []byte("out")), 3)
	f.Add(append(frame(2, []byte("err")), frame(1, nil)...), 1)
	f.Add([]byte{1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 'x'}, 100)
	f.Fuzz(func(t *testing.T, b []byte, size int) {
		if size < 1 || size > 1<<16 {
			return
		}
		var log bytes.Buffer
		d := &demux{r: iotest.OneByteReader(bytes.NewReader(b)), log: &log}
		buf, out := make([]byte, size), 0
		for {
			n, err := d.Read(buf)
			if out += n; err != nil {
				break
			}
		}
		if out+log.Len() > len(b) {
			t.Errorf("%d bytes in, %d and %d out", len(b), out, log.Len())
		}
	})
}

func TestTailKeepsTheEnd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := tail{maximum: 10}
		var all []byte
		for _, p := range rapid.SliceOf(rapid.SliceOfN(rapid.Byte(), 0, 25)).Draw(t, "writes") {
			all = append(all, p...)
			if n, err := l.Write(p); n != len(p) || err != nil {
				t.Fatal(n, err)
			}
		}
		if want := all[max(0, len(all)-10):]; !bytes.Equal(l.kept, want) {
			t.Errorf("kept %q, want %q", l.kept, want)
		}
	})
}
