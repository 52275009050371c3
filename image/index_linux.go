// SPDX-License-Identifier: Apache-2.0

package image

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/image/fstree"
)

// An index says where in a pack the contents of each file of the host are, so that the next
// pack, which is made when some of them have changed, has the others without reading them. It
// goes by what a pack goes by itself: what does not change as long as the contents do not.
//
// Its format: for each file the numbers of a mark and its offset, 8 bytes each, little
// endian; behind all of them their SHA-256.

const packIndex = "pack.index"

// mark is what tells a file with its contents from all others of this host.
type mark struct {
	Dev, Ino                 uint64
	Size                     int64
	MSec, MNsec, CSec, CNsec int64
}

// index is where contents are, by their files.
type index map[mark]int64

// indexEntry is a mark in a file.
type indexEntry struct {
	mark
	Offset int64
}

var indexEntrySize = binary.Size(indexEntry{})

// maxIndex is how long an index may be, in bytes.
var maxIndex = int64(maxPack.files*indexEntrySize + sha256.Size)

func markOf(st *unix.Stat_t) mark {
	return mark{st.Dev, st.Ino, st.Size, st.Mtim.Sec, st.Mtim.Nsec, st.Ctim.Sec, st.Ctim.Nsec}
}

// has gives a file its contents where the pack has them already.
func (p *packer) has(n *fstree.Node, st *unix.Stat_t) bool {
	at, ok := p.have[markOf(st)]
	if !ok {
		return false
	}
	n.Offset, n.Size = at, st.Size
	p.had += wholeBlocks(st.Size)
	p.keeps(n, st)
	return true
}

// keeps notes where the contents of a file are, and tells how far it is. Files of our making
// have other times each time.
func (p *packer) keeps(n *fstree.Node, st *unix.Stat_t) {
	if p.contents == nil {
		return
	}
	if !p.made && n.Size > 0 {
		p.kept, _ = binary.Append(p.kept, binary.LittleEndian, indexEntry{markOf(st), n.Offset})
	}
	if p.tell != nil {
		p.tell(p.total.bytes)
	}
}

var errIndex = errors.New("damaged index of a pack")

// formatIndex ends an index, for a disk that loses its end.
func formatIndex(entries []byte) []byte {
	sum := sha256.Sum256(entries)
	return append(entries, sum[:]...)
}

// readIndex reads the index of a pack whose contents end at an offset.
func readIndex(name string, end int64) (index, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxIndex+1))
	if err != nil {
		return nil, err
	}
	n := len(b) - sha256.Size
	if n < 0 || n%indexEntrySize != 0 || int64(len(b)) > maxIndex {
		return nil, errIndex
	}
	if sum := sha256.Sum256(b[:n]); !bytes.Equal(sum[:], b[n:]) {
		return nil, errIndex
	}
	all := make(index, n/indexEntrySize)
	var e indexEntry
	for b = b[:n]; len(b) > 0; b = b[indexEntrySize:] {
		if _, err := binary.Decode(b, binary.LittleEndian, &e); err != nil {
			return nil, err
		}
		if e.Offset < fstree.DataStart || e.Offset%fstree.Block != 0 || e.Size <= 0 || e.Size > end || e.Offset > end-e.Size {
			return nil, errIndex
		}
		all[e.mark] = e.Offset
	}
	return all, nil
}
