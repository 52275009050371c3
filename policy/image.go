// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"path/filepath"

	"github.com/caisson-run/caisson/image/reference"
)

// checkImage refuses what is no reference.
func checkImage(s string) error { _, err := reference.Parse(s); return err }

// templatePrefix makes a reference of a template's name.
const templatePrefix = "template:"

// checkTemplate refuses what is no NAME[:TAG].
func checkTemplate(s string) error { return checkImage(templatePrefix + s) }

// image takes what image or template says; a file has one of them.
func (d *decoder) image(v Value[string]) {
	if d.file.Image.Said() {
		d.fault(v.At, "drop one of them", "the root is said already, by image or template in line %d", d.file.Image.At.Line)
		return
	}
	d.file.Image = v
}

// image is the image that f names, its path absolute; f must name one.
func (f *File) image() reference.Ref {
	r, _ := reference.Parse(f.Image.V) // checked when f was read
	if r.Local() {
		r.Path = f.hostPath(r.Path)
	}
	return r
}

// boundImage: the image that f names, or one that its patterns allow. It
// returns the path that covers a local one. Where f names neither it allows
// none: which code starts is not for a call to choose.
func (f *File) boundImage(r reference.Ref) (string, *refusal) {
	if f.Image.Said() && f.image().Allows(r) {
		return r.Path, nil
	}
	for _, v := range f.Images {
		if reference.Match(v.V, r) {
			return "", nil
		}
	}
	switch {
	case f.Image.Said() && len(f.Images) == 0:
		return "", refuse(f.rule(f.Image.At), "change the line to image: "+r.Familiar(), "the image is %s, not %s", f.image().Familiar(), r.Familiar())
	case len(f.Images) > 0:
		return "", refuse(f.rule(f.Images[0].At), "add "+r.Familiar()+" to images", "no pattern of the policy allows the image %s", r.Familiar())
	case r.Local():
		return "", refuse(f.Name, f.add("image: "+r.String()), "the policy names no image")
	}
	return "", refuse(f.Name, f.add("images: ["+r.Familiar()+"]"), "the policy names no image")
}

// image settles what the root is made of: what the call names, else what the
// file does, within every layer. A call that names another root instead is
// bounded where that is (see rootfs).
func (d *decision) image() *refusal {
	if f := d.file; f != nil && f.Image.Said() && f.Files.Rootfs.Said() {
		return refuse(f.rule(f.Image.At), "drop one of them", "the policy names an image and a root filesystem")
	}
	layers, from := d.layers, "flag"
	var r reference.Ref
	switch {
	case d.call.Image != "":
		var err error
		if r, err = reference.Parse(d.call.Image); err != nil {
			return refuseInvalid("image", err)
		}
		if r.Local() {
			r.Path = filepath.Clean(r.Path)
		}
	case d.file != nil && d.file.Image.Said() && d.call.Rootfs == "":
		r, layers, from = d.file.image(), d.above(d.file), d.file.rule(d.file.Image.At)
	default:
		return nil
	}
	img := &PlanImage{Ref: r.String()}
	if r.Local() {
		img.Path = &PlanPath{Source: r.Path}
	}
	if d.call.OwnImage && r.Kind == reference.Template {
		layers = nil
	}
	for _, f := range layers {
		by, refused := f.boundImage(r)
		if refused != nil {
			return refused
		}
		if img.Path != nil {
			img.Path.Beneath = append(img.Path.Beneath, by)
		}
	}
	d.plan.Image, d.plan.From["image"] = img, from
	return nil
}
