// SPDX-License-Identifier: Apache-2.0

package changes

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/caisson-run/caisson/sandbox"
)

const (
	summaryFile  = "set.json"
	manifestFile = "manifest"
	stateFile    = "state.json"
	journalFile  = "journal" // it is there while an Apply is not finished
)

// manifestHead is the first line of a manifest; the others are its entries. The digest
// of a set is the SHA-256 of its manifest.
type manifestHead struct {
	Format       int          `json:"format"`
	Name         string       `json:"name"`
	Root         Root         `json:"root"`
	Repositories []Repository `json:"repositories,omitempty"`
}

// manifest writes a set down so that equal sets are equal bytes.
func (set *Set) manifest() ([]byte, error) {
	var b bytes.Buffer
	w := json.NewEncoder(&b)
	if err := w.Encode(manifestHead{Format: 1, Name: set.Name, Root: set.Root, Repositories: set.Repositories}); err != nil {
		return nil, err
	}
	for _, e := range slices.Concat(set.Entries, set.Git) {
		if err := w.Encode(e); err != nil {
			return nil, err
		}
	}
	return b.Bytes(), nil
}

// write writes a set into its directory.
func (set *Set) write(dir string) error {
	m, err := set.manifest()
	if err != nil {
		return err
	}
	sum := sha256.Sum256(m)
	set.Digest = hex.EncodeToString(sum[:])
	if err := os.WriteFile(filepath.Join(dir, manifestFile), m, 0o600); err != nil {
		return err
	}
	s, err := json.Marshal(set.Summary)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, summaryFile), s, 0o600)
}

// summary reads what a list shows of a set.
func (s *Store) summary(id string) (*Summary, error) {
	b, err := os.ReadFile(s.path(id, summaryFile))
	if err != nil {
		return nil, err
	}
	var sum Summary
	if err := json.Unmarshal(b, &sum); err != nil {
		return nil, err
	}
	sum.ID = id
	if b, err := os.ReadFile(s.path(id, stateFile)); err == nil {
		if err := json.Unmarshal(b, &sum.State); err != nil {
			return nil, err
		}
	}
	_, err = os.Lstat(s.path(id, journalFile))
	sum.State.Unfinished = err == nil
	return &sum, nil
}

// read reads a set, and checks that it is the one that was written.
func (s *Store) read(id string) (*Set, error) {
	sum, err := s.summary(id)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, noSet(id)
	}
	if err != nil {
		return nil, damaged(id, err)
	}
	m, err := os.ReadFile(s.path(id, manifestFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, noSet(id)
	}
	if err != nil {
		return nil, damaged(id, err)
	}
	if got := sha256.Sum256(m); hex.EncodeToString(got[:]) != sum.Digest {
		return nil, damaged(id, errors.New("its manifest has another digest"))
	}
	set := &Set{Summary: *sum}
	return set, set.parse(m)
}

// parse reads a manifest.
func (set *Set) parse(m []byte) error {
	d := json.NewDecoder(bufio.NewReader(bytes.NewReader(m)))
	var head manifestHead
	if err := d.Decode(&head); err != nil || head.Format != 1 {
		return damaged(set.ID, errors.Join(err, errors.New("another caisson wrote it")))
	}
	set.Root = head.Root
	for {
		var e Entry
		err := d.Decode(&e)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return damaged(set.ID, err)
		}
		if _, err := cleanName(e.Path, false); err != nil || e.Path == "" {
			return damaged(set.ID, errors.New("it has a path that is none"))
		}
		if ownGit(e.Path) {
			set.Git = append(set.Git, e)
		} else {
			set.Entries = append(set.Entries, e)
		}
	}
}

func damaged(id string, err error) error {
	return &sandbox.Error{Op: "change set " + id, Kind: sandbox.ErrUnavailable, Problem: "it cannot be read as it was kept", Hint: "drop it and run again", Cause: err}
}
