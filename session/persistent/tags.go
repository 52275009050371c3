// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/caisson-run/caisson/image"
	"github.com/caisson-run/caisson/image/reference"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
	"github.com/caisson-run/caisson/session/registry"
)

// List lists the key's templates, by name and tag.
func (t *Templates) List() ([]image.Template, error) {
	images, err := t.boxes.images()
	if err != nil {
		return nil, err
	}
	return images.Templates(t.key.ID)
}

// Shared lists the operator's templates that every key may have, by name and tag, but for
// names that the key has one of itself.
func (t *Templates) Shared() ([]image.Template, error) {
	images, err := t.boxes.images()
	if err != nil {
		return nil, err
	}
	list, err := images.Templates("")
	return slices.DeleteFunc(list, func(one image.Template) bool {
		r := reference.Ref{Kind: reference.Template, Name: one.Name, Tag: one.Tag}
		return !one.Shared || t.boxes.isConfigured(one.Name) || images.Owns(r, t.key.ID)
	}), err
}

// Tag gives what target names further tags.
func (t *Templates) Tag(target string, tags []string) error {
	images, err := t.boxes.images()
	if err != nil {
		return err
	}
	r, err := templateRef(target)
	if err != nil {
		return err
	}
	found, err := images.FindTemplate(r, t.key.ID)
	if err != nil {
		return err
	}
	if len(tags) == 0 || len(tags) > maxTags {
		return sandbox.Errorf(sandbox.ErrInvalid, "tags", "there are %d, and may be 1 to %d", len(tags), maxTags)
	}
	named := make([]reference.Ref, len(tags))
	for i, tag := range tags { // all or none
		if named[i], err = templateRef(r.Name + ":" + tag); err != nil {
			return err
		}
	}
	g, err := t.boxes.grants.of(t.key)
	if err != nil {
		return err
	}
	return t.name(images, g.profile.Quota, named, found.Image)
}

// name gives a template of the key names, if the quota has room for them.
func (t *Templates) name(images *image.Store, q Quota, names []reference.Ref, built *image.Stored) error {
	s := &t.boxes.builds
	s.naming.Lock() // what others of the key's builds come to meanwhile would not be counted
	defer s.naming.Unlock()
	if err := t.fits(images, q, names, built); err != nil {
		return err
	}
	for _, n := range names {
		if err := images.Name(n, t.key.ID, built); err != nil {
			return err
		}
	}
	return nil
}

// fits says whether the quota has room for names of a template, and for its files where it
// is known already. What has one of the names gives way, but for files that the key's sandboxes
// and snapshots go on with: those count as long as they do.
func (t *Templates) fits(images *image.Store, q Quota, names []reference.Ref, built *image.Stored) error {
	list, err := images.Templates(t.key.ID)
	if err != nil {
		return err
	}
	have := map[reference.Ref]*image.Stored{}
	for _, one := range list {
		have[reference.Ref{Kind: reference.Template, Name: one.Name, Tag: one.Tag}] = one.Image
	}
	for _, n := range names {
		have[n] = built
	}
	full := func(what string) *sandbox.Error {
		return &sandbox.Error{Op: "quota", Kind: sandbox.ErrExhausted, Problem: "the key's templates would have more than the " + what + " that they may", Hint: "delete a template or a tag", Rule: ruleQuota}
	}
	if q.Templates > 0 && len(have) > q.Templates {
		return full(fmt.Sprintf("%d names", q.Templates))
	}
	if q.TemplateSize <= 0 {
		return nil
	}
	files, size := map[string]bool{}, int64(0)
	for _, one := range have {
		if one != nil && !files[one.Digest] {
			files[one.Digest] = true
			size += one.Size
		}
	}
	kept, err := t.kept()
	if err != nil {
		return err
	}
	older := map[string]bool{}
	var by []string
	for _, one := range kept {
		if files[one.digest] {
			continue
		}
		if by = append(by, one.by); !older[one.digest] {
			older[one.digest] = true
			size += images.Size(one.digest)
		}
	}
	if size <= q.TemplateSize {
		return nil
	}
	over := full(session.Size(q.TemplateSize))
	if len(by) > 0 {
		over.Problem += ", with those of earlier builds that sandboxes or snapshots go on with"
		over.Hint += ", or what goes on with an earlier build: " + sandbox.Clip(strings.Join(by, ", "), 200)
	}
	return over
}

// keptImage is an image that something of a key goes on with.
type keptImage struct{ digest, by string }

// kept are the key's own templates that its sandboxes and snapshots go on with; of each who
// that is, for people.
func (t *Templates) kept() (out []keptImage, _ error) {
	ctx := context.Background()
	add := func(s *registry.Sandbox, by string) {
		if s.Owner == t.key.ID && s.OwnImage && s.ImageDigest != "" {
			out = append(out, keptImage{s.ImageDigest, by})
		}
	}
	left, err := t.boxes.o.Registry.Left(ctx)
	if err != nil {
		return nil, err
	}
	for _, s := range left {
		add(s, "sandbox "+s.ID)
	}
	snaps, err := t.boxes.o.Registry.Snapshots(ctx, t.key.ID)
	for _, s := range snaps {
		add(s.Sandbox, "snapshot "+s.ID)
	}
	return out, err
}

// Untag takes tags of a template away; all that it has where none is named.
func (t *Templates) Untag(name string, tags []string) error {
	images, err := t.boxes.images()
	if err != nil {
		return err
	}
	list, err := images.Templates(t.key.ID)
	if err != nil {
		return err
	}
	var gone []reference.Ref
	for _, one := range list {
		if one.Name == name && (len(tags) == 0 || slices.Contains(tags, one.Tag)) {
			gone = append(gone, reference.Ref{Kind: reference.Template, Name: name, Tag: one.Tag})
		}
	}
	if len(gone) == 0 || len(gone) < len(tags) {
		return sandbox.Errorf(sandbox.ErrNotFound, "template "+sandbox.Quoted(sandbox.Clip(name, maxName)), "there is no such template or tag")
	}
	for _, r := range gone {
		if err := images.Unname(r, t.key.ID); err != nil {
			return err
		}
	}
	return nil
}

// templateRef reads NAME[:TAG].
func templateRef(name string) (reference.Ref, error) {
	if strings.HasSuffix(name, ":") || strings.Count(name, ":") > 1 {
		return reference.Ref{}, &sandbox.Error{Op: "template " + sandbox.Quoted(sandbox.Clip(name, maxName)), Kind: sandbox.ErrInvalid, Problem: "it is not NAME[:TAG]", Hint: "write a name, and a tag behind a colon"}
	}
	return reference.Parse("template:" + name)
}

// isConfigured says whether the operator has configured a template of a name.
func (b *Sandboxes) isConfigured(name string) bool { return !b.isBuilt(name) }
