// SPDX-License-Identifier: Apache-2.0

package gitimport

import (
	"bufio"
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"sort"
	"strings"

	"golang.org/x/sys/unix"
)

// pack is a pack of the host's with its index, of which version 2 is read.
type pack struct {
	index []byte
	count int
	file  *os.File
}

const (
	maxIndex = 2 << 30
	maxPacks = 1000
	maxChain = 4096 // deltas on deltas
	idxHead  = 8
	idxIDs   = idxHead + 256*4
)

// openPacks opens the packs of a repository.
func openPacks(objects *os.File) (all []*pack, err error) {
	dir, err := openBelow(objects, "pack", unix.O_RDONLY|unix.O_DIRECTORY)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		stem, ok := strings.CutSuffix(name, ".idx")
		if !ok {
			continue
		}
		p, err := openPack(objects, path.Join("pack", stem))
		if errors.Is(err, fs.ErrNotExist) {
			continue // repacked meanwhile
		}
		if err == nil && len(all) == maxPacks {
			p.close()
			err = errors.New("it has too many packs")
		}
		if err != nil {
			for _, p := range all {
				p.close()
			}
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

func openPack(objects *os.File, stem string) (*pack, error) {
	idx, err := openFile(objects, stem+".idx")
	if err != nil {
		return nil, err
	}
	defer idx.Close()
	info, err := idx.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() < idxIDs+40 || info.Size() > maxIndex {
		return nil, fmt.Errorf("%s.idx has %d bytes", stem, info.Size())
	}
	p := &pack{}
	if p.file, err = openFile(objects, stem+".pack"); err != nil {
		return nil, err
	}
	if p.index, err = unix.Mmap(int(idx.Fd()), 0, int(info.Size()), unix.PROT_READ, unix.MAP_SHARED); err != nil {
		p.file.Close()
		return nil, err
	}
	p.count = int(p.word(idxHead + 255*4))
	if string(p.index[:idxHead]) != "\xfftOc\x00\x00\x00\x02" || idxIDs+p.count*(20+4+4)+40 > len(p.index) {
		p.close()
		return nil, fmt.Errorf("%s.idx is no index of version 2", stem)
	}
	return p, nil
}

func (p *pack) close() {
	_ = unix.Munmap(p.index)
	p.file.Close()
}

func (p *pack) word(at int) uint32 { return binary.BigEndian.Uint32(p.index[at:]) }

// find says where an object begins in the pack.
func (p *pack) find(id ID) (offset int64, ok bool) {
	low, high := 0, min(int(p.word(idxHead+int(id[0])*4)), p.count)
	if id[0] > 0 {
		low = min(int(p.word(idxHead+int(id[0]-1)*4)), high)
	}
	at := func(i int) []byte { return p.index[idxIDs+i*20 : idxIDs+i*20+20] }
	i := low + sort.Search(high-low, func(i int) bool { return bytes.Compare(at(low+i), id[:]) >= 0 })
	if i >= high || !bytes.Equal(at(i), id[:]) {
		return 0, false
	}
	offsets := idxIDs + p.count*(20+4)
	v := p.word(offsets + i*4)
	if v&(1<<31) == 0 {
		return int64(v), true
	}
	long := offsets + p.count*4 + int(v&^(1<<31))*8
	if long+8 > len(p.index) {
		return 0, false
	}
	return int64(binary.BigEndian.Uint64(p.index[long:]) & (1<<63 - 1)), true
}

// begin reads what stands before an object in the pack: its type, its size, and of a
// delta the object that it is one of, by its place or by its id.
func (p *pack) begin(at int64) (r *bufio.Reader, kind byte, size, back int64, base ID, err error) {
	r = bufio.NewReader(io.NewSectionReader(p.file, at, 1<<62-at))
	b, err := r.ReadByte()
	if err != nil {
		return
	}
	kind, size = b>>4&7, int64(b&15)
	for shift := 4; b&0x80 != 0; shift += 7 {
		if b, err = r.ReadByte(); err != nil {
			return
		}
		if shift > 40 {
			err = errors.New("its size has no end")
			return
		}
		size |= int64(b&0x7f) << shift
	}
	switch kind {
	case 6:
		if back, err = readOffset(r); err == nil && (back <= 0 || back >= at) {
			err = errors.New("it is a delta of nothing")
		}
	case 7:
		_, err = io.ReadFull(r, base[:])
	case 1, 2, 3, 4:
	default:
		err = fmt.Errorf("it is of the type %d", kind)
	}
	return
}

var packKinds = [...]Kind{1: Commit, 2: Tree, 3: Blob, 4: "tag"}

// kind says what an object is, by the one at the end of its deltas.
func (p *pack) kind(at int64, depth int, base func(ID) (Kind, error)) (Kind, error) {
	_, kind, _, back, id, err := p.begin(at)
	switch {
	case err != nil:
		return "", err
	case depth > maxChain:
		return "", errors.New("its deltas have no end")
	case kind == 6:
		return p.kind(at-back, depth+1, base)
	case kind == 7:
		return base(id)
	}
	return packKinds[kind], nil
}

// read reads an object, with the ones that it is a delta of.
func (p *pack) read(at, maximum int64, depth int, base func(ID) (Kind, []byte, error)) (Kind, []byte, error) {
	r, kind, size, back, id, err := p.begin(at)
	switch {
	case err != nil:
		return "", nil, err
	case depth > maxChain:
		return "", nil, errors.New("its deltas have no end")
	case size > maximum:
		return "", nil, fmt.Errorf("it has %d bytes, and at most %d are read", size, maximum)
	}
	b, err := inflate(r, size)
	if err != nil || kind < 6 {
		return packKinds[min(kind, 4)], b, err
	}
	k, from, err := Kind(""), []byte(nil), error(nil)
	if kind == 6 {
		k, from, err = p.read(at-back, maximum, depth+1, base)
	} else {
		k, from, err = base(id)
	}
	if err != nil {
		return "", nil, err
	}
	c, err := applyDelta(from, b, maximum)
	return k, c, err
}

func inflate(r io.Reader, size int64) ([]byte, error) {
	z, err := zlib.NewReader(r)
	if err != nil {
		return nil, err
	}
	defer z.Close()
	b, err := io.ReadAll(io.LimitReader(z, size+1))
	if err == nil && int64(len(b)) != size {
		err = errors.New("it has another size than the pack says")
	}
	return b, err
}

// readOffset reads how far before a delta its base lies.
func readOffset(r *bufio.Reader) (v int64, err error) {
	for i := 0; ; i++ {
		b, err := r.ReadByte()
		if err != nil {
			return 0, err
		}
		if i > 8 {
			return 0, errors.New("its offset has no end")
		}
		v = v<<7 | int64(b&0x7f)
		if b&0x80 == 0 {
			return v, nil
		}
		v++
	}
}
