// SPDX-License-Identifier: Apache-2.0

package hostpath

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
)

// maxGitIndex bounds an index that is read, in bytes.
const maxGitIndex = 128 << 20

var errGitIndex = errors.New("its index is not one that git writes")

// gitIndex is what is read of an index.
type gitIndex struct {
	gitlinks []string // paths of submodules
	shared   string   // the name of the file that has the other entries; empty is none
}

const (
	indexEntry    = 40      // bytes of an entry before the name of its object
	indexGitlink  = 0o16    // the type of a submodule in an entry's mode
	indexExtended = 1 << 14 // the flag of an entry with two more bytes of flags
)

// parseGitIndex reads the paths of submodules out of an index (gitformat-index): with
// one of them git looks into a repository there. hash is the length of object names, 20
// or 32.
func parseGitIndex(b []byte, hash int) (*gitIndex, error) {
	return readGitIndex(b, hash, func([]byte) {})
}

// TrackedPaths gives the paths that an index has, and the name of the file beside it that
// has more; empty is none.
func TrackedPaths(index []byte) (paths []string, shared string, err error) {
	for _, hash := range []int{20, 32} {
		paths = nil
		x, err := readGitIndex(index, hash, func(name []byte) { paths = append(paths, string(name)) })
		if err == nil {
			return paths, x.shared, nil
		}
	}
	return nil, "", errGitIndex
}

// readGitIndex is parseGitIndex that gives each path to each.
func readGitIndex(b []byte, hash int, each func(name []byte)) (*gitIndex, error) {
	if len(b) < 12+hash || string(b[:4]) != "DIRC" {
		return nil, errGitIndex
	}
	version, n := binary.BigEndian.Uint32(b[4:]), binary.BigEndian.Uint32(b[8:])
	if version < 2 || version > 4 {
		return nil, errGitIndex
	}
	x := &gitIndex{}
	rest := b[12 : len(b)-hash]
	var name []byte
	for range n {
		head := indexEntry + hash + 2
		if len(rest) < head {
			return nil, errGitIndex
		}
		mode := binary.BigEndian.Uint32(rest[24:])
		if binary.BigEndian.Uint16(rest[indexEntry+hash:])&indexExtended != 0 {
			if head += 2; version < 3 || len(rest) < head {
				return nil, errGitIndex
			}
		}
		at := head
		if version == 4 {
			cut, size := offset(rest[at:])
			if size == 0 || cut > uint64(len(name)) {
				return nil, errGitIndex
			}
			name, at = name[:len(name)-int(cut)], at+size
		} else {
			name = name[:0]
		}
		end := bytes.IndexByte(rest[at:], 0)
		if end < 0 {
			return nil, errGitIndex
		}
		name = append(name, rest[at:at+end]...)
		each(name)
		if mode>>12 == indexGitlink {
			x.gitlinks = append(x.gitlinks, string(name))
		}
		size := at + end + 1
		if version < 4 { // an entry is a multiple of eight bytes long
			size = (at + end + 8) &^ 7
		}
		if size > len(rest) {
			return nil, errGitIndex
		}
		rest = rest[size:]
	}
	return x, x.extensions(rest, hash)
}

// extensions looks for the one that says that there are more entries elsewhere.
func (x *gitIndex) extensions(rest []byte, hash int) error {
	for len(rest) >= 8 {
		size := uint64(binary.BigEndian.Uint32(rest[4:]))
		if size > uint64(len(rest)-8) {
			return errGitIndex
		}
		if string(rest[:4]) == "link" {
			if size < uint64(hash) {
				return errGitIndex
			}
			x.shared = "sharedindex." + hex.EncodeToString(rest[8:8+hash])
		}
		rest = rest[8+size:]
	}
	return nil
}

// offset reads a number as git packs write it (offset encoding), and its length; 0 is none.
func offset(b []byte) (n uint64, size int) {
	for i, c := range b {
		if i > 8 {
			return 0, 0
		}
		if i > 0 {
			n++
		}
		n = n<<7 | uint64(c&0x7f)
		if c&0x80 == 0 {
			return n, i + 1
		}
	}
	return 0, 0
}
