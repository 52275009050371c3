// SPDX-License-Identifier: Apache-2.0

package image

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/caisson-run/caisson/image/fstree"
	"github.com/caisson-run/caisson/image/reference"
)

// resolved is what a reference meant when it was pulled.
type resolved struct {
	Ref      string    `json:"ref"` // in its one form
	Platform string    `json:"platform"`
	Digest   string    `json:"digest"`
	Pulled   time.Time `json:"pulled"`
	// Owner is whose template it is: the ID of a key; empty is the operator's.
	Owner string `json:"owner,omitempty"`
	// Shared says that every key may have this template of the operator's.
	Shared bool `json:"shared,omitempty"`
}

// nameFile is where it is kept what r means for an owner. Only templates have one.
func (s *Store) nameFile(r reference.Ref, owner string) string {
	if owner != "" {
		owner = " of " + owner
	}
	return filepath.Join(s.dir, "names", shortHash(r.String()+" "+Platform()+owner)+".json")
}

// resolve gives the digest that r had for an owner when it was pulled or built last; empty
// when it was not.
func (s *Store) resolve(r reference.Ref, owner string) (string, error) {
	one, err := readName(s.nameFile(r, owner))
	if errors.Is(err, os.ErrNotExist) || err == nil && (one.Ref != r.String() || one.Platform != Platform() || one.Owner != owner) {
		return "", nil
	}
	return one.Digest, err
}

func readName(file string) (resolved, error) {
	var one resolved
	b, err := os.ReadFile(file)
	if err != nil {
		return one, err
	}
	if json.Unmarshal(b, &one) != nil || !fstree.IsDigest(one.Digest) {
		return resolved{}, nil // not written by a known version: it is pulled again
	}
	return one, nil
}

// names lets one process at a time change names, until done.
func (s *Store) names() (done func(), _ error) {
	return s.images().alone(context.Background(), "names")
}

// remember notes what r means now for an owner. A name that is shared stays so.
func (s *Store) remember(r reference.Ref, owner, digest string) error {
	done, err := s.names()
	if err != nil {
		return err
	}
	defer done()
	was, _ := readName(s.nameFile(r, owner)) // there may be none
	return s.writeName(r, resolved{r.String(), Platform(), digest, time.Now().UTC(), owner, was.Shared})
}

// writeName writes down what r means. The caller has locked the names.
func (s *Store) writeName(r reference.Ref, one resolved) error {
	b, err := json.Marshal(one)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Join(s.dir, "names"), tempPrefix)
	if err != nil {
		return cacheError("keep image", err)
	}
	_, err = f.Write(b)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), s.nameFile(r, one.Owner))
	}
	if err != nil {
		os.Remove(f.Name())
		return cacheError("keep image", err)
	}
	return nil
}

// allNames lists what was resolved, by digest.
func (s *Store) allNames() (map[string][]resolved, error) {
	files, err := os.ReadDir(filepath.Join(s.dir, "names"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, cacheError("list images", err)
	}
	out := map[string][]resolved{}
	for _, e := range files {
		if strings.HasPrefix(e.Name(), tempPrefix) {
			continue // no name yet, and none ever if its writer died
		}
		one, err := readName(filepath.Join(s.dir, "names", e.Name()))
		if err == nil && one.Digest != "" {
			out[one.Digest] = append(out[one.Digest], one)
		}
	}
	return out, nil
}

// forget drops all names of a digest. One that means another by now stays.
func (s *Store) forget(names []resolved) {
	done, err := s.names()
	if err != nil {
		return // they lead to nothing, and are pulled again
	}
	defer done()
	for _, n := range names {
		r, err := reference.Parse(n.Ref)
		if err != nil {
			continue
		}
		file := s.nameFile(r, n.Owner)
		if now, err := readName(file); err == nil && now.Digest == n.Digest {
			os.Remove(file)
		}
	}
}

// pruneNames removes what those left who died while they wrote a name.
func (s *Store) pruneNames() {
	cache{dir: filepath.Join(s.dir, "names"), prefix: "."}.prune("")
}
