// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
)

// A frame is what one commit appended: records, the content that goes beside them, and
// the head that ends with the last.
type frame struct {
	records []*record
	kept    [][][]byte // for each record
	head    Checkpoint
}

// mostKept is how many contents go beside a record; a call has three, an ending two.
const mostKept = 8

const frameDomain = "caisson audit frame v1\n"

// newFrame is what a group of calls appends.
func newFrame(list []*addition, head Checkpoint) *frame {
	f := &frame{head: head}
	for _, a := range list {
		f.records, f.kept = append(f.records, &a.record), append(f.kept, a.contents())
	}
	return f
}

// encode is the frame as it lies in the file: lengths and numbers big-endian.
func (f *frame) encode() []byte {
	b := append(make([]byte, 0, 4096), frameDomain...)
	b = binary.BigEndian.AppendUint64(b, 0) // the length of what follows, below
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

// parseFrame reads the frame that b begins with, and how long it is. What it says is
// not checked, but that each record is what its fields say. ok is false for what encode
// cannot have made.
func parseFrame(b []byte, installation string) (f *frame, size int64, ok bool) {
	rest, ok := bytes.CutPrefix(b, []byte(frameDomain))
	if !ok || len(rest) < 8 {
		return nil, 0, false
	}
	n := binary.BigEndian.Uint64(rest)
	if rest = rest[8:]; n > uint64(len(rest)) {
		return nil, 0, false
	}
	r := fields{rest: rest[:n]}
	f = &frame{}
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

// fields reads what a frame consists of, one after the other; bad is set for ever by
// what does not fit.
type fields struct {
	rest []byte
	bad  bool
}

// take is the next n bytes, a part of the frame that nothing may be appended to.
func (r *fields) take(n uint64) []byte {
	if r.bad = r.bad || n > uint64(len(r.rest)); r.bad {
		return nil
	}
	b := r.rest[:n:n]
	r.rest = r.rest[n:]
	return b
}

// count is how many things follow; each takes four bytes at least.
func (r *fields) count() int {
	n := uint64(0)
	if b := r.take(4); b != nil {
		n = uint64(binary.BigEndian.Uint32(b))
	}
	if r.bad = r.bad || n > uint64(len(r.rest)/4); r.bad {
		return 0
	}
	return int(n)
}

func (r *fields) number() int64 {
	if b := r.take(8); b != nil {
		return int64(binary.BigEndian.Uint64(b))
	}
	return 0
}

func (r *fields) field() []byte {
	if b := r.take(4); b != nil {
		return r.take(uint64(binary.BigEndian.Uint32(b)))
	}
	return nil
}

func (r *fields) contents() [][]byte {
	var list [][]byte
	n := r.count()
	r.bad = r.bad || n > mostKept
	for range min(n, mostKept) {
		list = append(list, r.field())
	}
	return list
}

func (r *fields) record() *record {
	canonical, signature, body := r.field(), r.field(), r.field()
	rec, ok := parseCanonical(canonical)
	if !ok || !bytes.Equal(sum(body), rec.bodyDigest) {
		r.bad = true
	}
	rec.digest, rec.signature, rec.body = sum(canonical), signature, body
	return &rec
}
