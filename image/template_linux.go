// SPDX-License-Identifier: Apache-2.0

package image

import (
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/caisson-run/caisson/image/fstree"
	"github.com/caisson-run/caisson/image/reference"
	"github.com/caisson-run/caisson/sandbox"
)

// Template is an image that was built here, under one of its names.
type Template struct {
	Name  string    `json:"name"`
	Tag   string    `json:"tag"`
	Owner string    `json:"owner,omitempty"` // the ID of a key; empty is the operator
	Named time.Time `json:"named"`           // when the name was given
	// Shared says that it is the operator's, and that every key may have it.
	Shared bool    `json:"shared,omitempty"`
	Image  *Stored `json:"image"`
}

// template finds an owner's template, else the operator's.
func (s *Store) template(r reference.Ref, owner string) (*Stored, error) {
	for _, o := range slices.Compact([]string{owner, ""}) {
		digest, err := s.resolve(r, o)
		if err != nil {
			return nil, err
		}
		if digest != "" {
			if info, err := s.info(digest); !errors.Is(err, sandbox.ErrNotFound) {
				return info, err
			}
		}
	}
	return nil, noTemplate(r)
}

func noTemplate(r reference.Ref) error {
	return &sandbox.Error{Op: r.Familiar(), Kind: sandbox.ErrNotFound, Problem: "there is no such template", Hint: "caisson template ls lists what there is; caisson template build " + r.Name + " makes it"}
}

// Has says whether an image is here.
func (s *Store) Has(digest string) bool {
	_, err := s.info(digest)
	return err == nil
}

// Size is how many bytes the files of an image take together; 0 where it is not here.
func (s *Store) Size(digest string) int64 {
	info, err := s.info(digest)
	if err != nil {
		return 0
	}
	return info.Size
}

// Owns says whether an owner has a template of the name itself.
func (s *Store) Owns(r reference.Ref, owner string) bool {
	digest, err := s.resolve(r, owner)
	return err == nil && digest != ""
}

// Share lets every key have a template of the operator's, whatever it comes to later, or
// lets those have it alone whose policy names it. ErrNotFound when there is none.
func (s *Store) Share(r reference.Ref, with bool) error {
	done, err := s.names()
	if err != nil {
		return err
	}
	defer done()
	digest, err := s.resolve(r, "")
	if err != nil {
		return err
	}
	if digest == "" {
		return noTemplate(r)
	}
	one, err := readName(s.nameFile(r, ""))
	if err != nil {
		return cacheError("read template", err)
	}
	one.Shared = with
	return s.writeName(r, one)
}

// MayHave says whether a key may have a template of the name whatever its policy says of
// images: its own, or else one of the operator's that is shared.
func (s *Store) MayHave(r reference.Ref, key string) bool {
	if key == "" || s.Owns(r, key) {
		return key != ""
	}
	one, err := readName(s.nameFile(r, ""))
	return err == nil && one.Ref == r.String() && one.Shared
}

// Name calls an image by a template's name from now on. The one that had the name goes,
// where it has no other and no sandbox uses it, and so do old images of builds that have
// no name, but for some.
func (s *Store) Name(r reference.Ref, owner string, info *Stored) error {
	held, err := s.images().open(keyOf(info.Digest)) // no prune takes it before it has its name
	if err != nil {
		return err
	}
	if held == nil {
		return removed(info.Digest)
	}
	defer held.Close()
	old, err := s.resolve(r, owner)
	if err != nil {
		return err
	}
	if err := s.remember(r, owner, info.Digest); err != nil || old == info.Digest {
		return err
	}
	if was, err := s.info(old); old != "" && err == nil {
		_ = s.remove(was, false) // one that is in use goes later
	}
	s.pruneBuilt(keepUnnamed)
	return nil
}

// keepUnnamed is how many images of builds stay without a name: stages, from which the
// next build goes on.
const keepUnnamed = 8

// pruneBuilt removes images of builds without a name, but for the newest, and those that
// are used. It returns how many.
func (s *Store) pruneBuilt(keep int) (n int) {
	list, err := s.List()
	if err != nil {
		return 0 // another build does it
	}
	for _, info := range list {
		if !info.Built || len(info.Names) > 0 {
			continue
		}
		if keep--; keep < 0 && s.remove(info, false) == nil {
			n++
		}
	}
	return n
}

// Templates lists an owner's templates, by name and tag.
func (s *Store) Templates(owner string) ([]Template, error) {
	names, err := s.allNames()
	if err != nil {
		return nil, err
	}
	var out []Template
	for digest, list := range names {
		for _, n := range list {
			r, err := reference.Parse(n.Ref)
			if err != nil || r.Kind != reference.Template || n.Owner != owner {
				continue
			}
			info, err := s.info(digest)
			if err != nil {
				continue // it was removed meanwhile, or is damaged: prune takes it
			}
			out = append(out, Template{Name: r.Name, Tag: r.Tag, Owner: n.Owner, Named: n.Pulled, Shared: n.Shared, Image: info})
		}
	}
	slices.SortFunc(out, func(a, b Template) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Tag, b.Tag)) })
	return out, nil
}

// FindTemplate finds an owner's template; ErrNotFound when it has none of the name.
func (s *Store) FindTemplate(r reference.Ref, owner string) (*Template, error) {
	list, err := s.Templates(owner)
	if err != nil {
		return nil, err
	}
	for i := range list {
		if list[i].Name == r.Name && list[i].Tag == r.Tag {
			return &list[i], nil
		}
	}
	return nil, noTemplate(r)
}

// PruneSteps removes what builds keep: the results of their steps, but for the newest that
// take keep bytes together, and images of theirs without a name. It returns how many.
func (s *Store) PruneSteps(keep int64) (int, error) {
	n := s.pruneBuilt(0)
	before, err := s.keys(s.steps().prefix)
	if err != nil {
		return n, err
	}
	if keep > 0 {
		steps := s.steps()
		steps.size = keep
		steps.prune("")
	} else {
		for _, key := range before {
			s.steps().remove(s.steps().prefix+key, nil)
		}
		s.Sweep()
	}
	after, err := s.keys(s.steps().prefix)
	return n + len(before) - len(after), err
}

// Sweep removes what builders left that have died, and what is kept of steps beyond its
// bounds.
func (s *Store) Sweep() {
	s.steps().prune("")
	s.pruneNames()
}

// Unname takes a name from an owner's template, and removes the image when that was its
// last one and no sandbox uses it. ErrNotFound when the owner has none of the name.
func (s *Store) Unname(r reference.Ref, owner string) error {
	digest, err := s.resolve(r, owner)
	if err != nil {
		return err
	}
	if digest == "" {
		return noTemplate(r)
	}
	s.forget([]resolved{{Ref: r.String(), Platform: Platform(), Digest: digest, Owner: owner}})
	if info, err := s.info(digest); err == nil {
		_ = s.remove(info, false) // one that is in use is prune's
	}
	return nil
}

func (s *Store) steps() cache {
	return cache{dir: s.dir, prefix: "step-" + format, keep: keepSteps, size: keepStepBytes, weighs: layerName}
}

// How many steps of builds stay, and how many bytes they take together.
const (
	keepSteps     = 200
	keepStepBytes = 20 << 30
)

// layerName is what a step has changed: a tar archive of an overlay's layer, with zstd.
const layerName = "layer.tar.zst"

// Step opens what a step of a build has changed; nil where it was not run, or is not kept
// any more. The caller closes it.
func (s *Store) Step(key string) (*os.File, error) {
	held, err := s.steps().open(key)
	if held == nil || err != nil {
		return nil, err
	}
	defer held.Close()
	f, err := openIn(held, layerName)
	if err != nil {
		return nil, cacheError("open step", err)
	}
	return f, nil
}

// KeepStep keeps what a step has changed, which write writes, and opens it as Step does.
func (s *Store) KeepStep(ctx context.Context, key string, write func(f *os.File) error) (*os.File, error) {
	held, err := s.steps().tree(ctx, key, func(_ context.Context, dir string) error {
		f, err := os.OpenFile(filepath.Join(dir, layerName), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := write(f); err != nil {
			return diskError(err)
		}
		return diskError(f.Sync())
	})
	if err != nil {
		return nil, err
	}
	defer held.Close()
	f, err := openIn(held, layerName)
	if err != nil {
		return nil, cacheError("open step", err)
	}
	return f, nil
}

// DropStep forgets what a step has changed, and says whether it is forgotten: what a build
// reads just now is not.
func (s *Store) DropStep(key string) bool { return s.steps().remove(s.steps().prefix+key, nil) }

// Info is what is known of an image by its digest; ErrNotFound when it is not here.
func (s *Store) Info(digest string) (*Stored, error) { return s.info(digest) }

// Opened is an image whose files can be read. The caller closes it; until then it stays.
type Opened struct {
	Tree *fstree.Node
	held *os.File
	file *os.File
}

// Open opens an image to read files of it.
func (s *Store) Open(info *Stored) (*Opened, error) {
	held, err := s.images().open(keyOf(info.Digest))
	if err != nil {
		return nil, err
	}
	if held == nil {
		return nil, removed(info.Digest)
	}
	o := &Opened{held: held}
	if o.file, err = openIn(held, erofsName); err != nil {
		return nil, errors.Join(cacheError("open image", err), held.Close())
	}
	if o.Tree, err = readTree(o.file); err != nil {
		return nil, errors.Join(err, o.Close())
	}
	return o, nil
}

// Read reads a file of the tree.
func (o *Opened) Read(n *fstree.Node) io.Reader { return io.NewSectionReader(o.file, n.Offset, n.Size) }

// Close lets go of the image.
func (o *Opened) Close() error { return errors.Join(o.file.Close(), o.held.Close()) }
