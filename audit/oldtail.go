// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"slices"
)

// audit.tail was written by caisson up to layout 2 of the database: short runs appended
// their records there. This file reads what such a caisson left. Nothing writes it.
//
// The file is a sector of JSON, then frames, then zeros. Each commit appended one frame:
// its records, their content, and the signed head behind the last record. The sector was
// rewritten afterwards, without a sync, so it may be older than the frames.
const (
	tailFile  = "audit.tail"
	tailStart = headSize // where the first frame begins, in bytes
	// maxTail bounds the file, in bytes. The old caisson wrote no frame beyond it.
	maxTail = 64<<20 + 64<<10
)

// tailSector is what the first sector says. Its other fields were for those who appended.
type tailSector struct {
	End  int64      `json:"end"`  // where the frames end, in bytes; 0 when nothing is known
	Head Checkpoint `json:"head"` // of all records, in the database and here
}

// parseTailSector reads the first sector. Zeros, or no sector, are the zero tailSector.
// It checks no signature.
func parseTailSector(b []byte) (s tailSector, ok bool) {
	b = b[:min(len(b), tailStart)]
	if len(bytes.Trim(b, "\x00")) == 0 {
		return tailSector{}, true
	}
	// The last byte is a mark, and no part of the JSON.
	if len(b) != tailStart || json.Unmarshal(b[:tailStart-1], &s) != nil || s.End < tailStart {
		return tailSector{}, false
	}
	return s, true
}

// tailFrame is what one commit appended.
type tailFrame struct {
	records []*record
	kept    [][][]byte // the contents beside each record
	head    Checkpoint // ends with the last record
}

// maxFrameKept bounds the contents beside a record: a call has three, an ending two.
const maxFrameKept = 8

const frameDomain = "caisson audit frame v1\n"

// parseTailFrame reads the frame that b begins with, and its size in bytes. It checks
// digests, and no signature. ok is false when b does not begin with a whole frame.
func parseTailFrame(b []byte, installation string) (f *tailFrame, size int64, ok bool) {
	rest, ok := bytes.CutPrefix(b, []byte(frameDomain))
	if !ok || len(rest) < 8 {
		return nil, 0, false
	}
	n := binary.BigEndian.Uint64(rest)
	if rest = rest[8:]; n > uint64(len(rest)) {
		return nil, 0, false
	}
	r := frameReader{rest: rest[:n]}
	f = &tailFrame{}
	for range r.count() {
		f.records, f.kept = append(f.records, r.record()), append(f.kept, r.contents())
		if r.bad {
			return nil, 0, false
		}
	}
	at, signature := r.number(), r.field()
	if r.bad || len(r.rest) > 0 || len(f.records) == 0 {
		return nil, 0, false
	}
	last := f.records[len(f.records)-1]
	f.head = newHead(installation, last.seq, last.link(), at, signature)
	return f, int64(len(b)-len(rest)) + int64(n), true
}

// frameReader reads the parts of a frame one after the other. bad stays set once
// something does not fit.
type frameReader struct {
	rest []byte
	bad  bool
}

// take is the next n bytes.
func (r *frameReader) take(n uint64) []byte {
	if r.bad = r.bad || n > uint64(len(r.rest)); r.bad {
		return nil
	}
	b := r.rest[:n:n]
	r.rest = r.rest[n:]
	return b
}

// count is how many things follow; each takes four bytes at least.
func (r *frameReader) count() int {
	n := uint64(0)
	if b := r.take(4); b != nil {
		n = uint64(binary.BigEndian.Uint32(b))
	}
	if r.bad = r.bad || n > uint64(len(r.rest)/4); r.bad {
		return 0
	}
	return int(n)
}

func (r *frameReader) number() int64 {
	if b := r.take(8); b != nil {
		return int64(binary.BigEndian.Uint64(b))
	}
	return 0
}

func (r *frameReader) field() []byte {
	if b := r.take(4); b != nil {
		return r.take(uint64(binary.BigEndian.Uint32(b)))
	}
	return nil
}

func (r *frameReader) contents() [][]byte {
	var list [][]byte
	n := r.count()
	r.bad = r.bad || n > maxFrameKept
	for range min(n, maxFrameKept) {
		list = append(list, r.field())
	}
	return list
}

func (r *frameReader) record() *record {
	canonical, signature, body := r.field(), r.field(), r.field()
	rec, ok := parseCanonical(canonical)
	if !ok || !bytes.Equal(sum(body), rec.bodyDigest) {
		r.bad = true
	}
	rec.digest, rec.signature, rec.body = sum(canonical), signature, body
	return &rec
}

// before is the end of the chain that the frame goes on from.
func (f *tailFrame) before() Checkpoint {
	first := f.records[0]
	return Checkpoint{Count: first.seq - 1, Link: hex.EncodeToString(first.prev)}
}

// chained says whether each record of the frame follows the one before it.
func (f *tailFrame) chained() bool {
	before := f.before()
	for _, r := range f.records {
		if r.seq != before.Count+1 || hex.EncodeToString(r.prev) != before.Link {
			return false
		}
		before.Count, before.Link = r.seq, hex.EncodeToString(r.link())
	}
	return true
}

// complete says whether the content beside each record is what the record refers to:
// no signature covers that.
func (f *tailFrame) complete() bool {
	for i, r := range f.records {
		refers, ok := r.refers()
		if !ok {
			return false
		}
		var kept []string
		for _, content := range f.kept[i] {
			kept = append(kept, hex.EncodeToString(sum(content)))
		}
		slices.Sort(refers)
		slices.Sort(kept)
		if !slices.Equal(slices.Compact(refers), slices.Compact(kept)) {
			return false
		}
	}
	return true
}
