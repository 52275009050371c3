// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"io"
	"path/filepath"
	"slices"

	"github.com/caisson-run/caisson/image"
	"github.com/caisson-run/caisson/image/reference"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
)

// findImage finds the plan's container image and, when it is not here yet, gets
// it. What it says of its user counts from here on; [image.Stored] has the rules.
// A directory that is no image is another root filesystem.
func (r *run) findImage(ctx context.Context, w *world) error {
	p := r.plan.Image
	if p == nil {
		return r.noImage("there is no image whose program it would replace")
	}
	ref, err := reference.Parse(p.Ref)
	if err != nil {
		return err
	}
	o := image.PullOptions{Insecure: r.call.InsecureRegistry, Progress: r.call.OnPull}
	if p.Path != nil {
		src, err := r.open(*p.Path, "image", sandbox.ReadOnly)
		if err != nil {
			return err
		}
		if image.IsTree(ref, src.File) {
			r.plan.Rootfs = p.Path
			r.intent.Image, r.intent.Mounts = "", r.mountsForRecord()
			return r.noImage("a plain directory has none")
		}
		if r.call.InsecureRegistry {
			return noRegistry("the image comes from no registry")
		}
		o.File = src.File
	}
	if !r.caps.Images {
		return &sandbox.Error{Op: "--image", Kind: sandbox.ErrUnsupported, Problem: r.plan.Isolation + " takes no container images", Hint: "take another level, or unpack it and give --rootfs DIR"}
	}
	if r.store, err = image.OpenStore(r.s.Images()); err != nil {
		return err
	}
	var held io.Closer
	if r.image, held, err = r.store.Hold(ctx, ref, o); err != nil {
		return err
	}
	r.undo.add(func(context.Context) error { return held.Close() })
	if ref.Digest == "" {
		r.intent.Image += "@" + r.image.Digest
	}
	w.spec.User = r.image.User
	if r.plan.Root {
		w.spec.User = r.image.Root
	}
	for _, n := range r.image.Notes {
		r.notice(n)
	}
	return nil
}

// Images is the directory of the container images that the session's runs use.
func (s *Session) Images() string { return filepath.Join(s.o.State.Path(), "images") }

// imageCommand completes the argv by what the image says, and the record with
// what is really run.
func (r *run) imageCommand(w *world) error {
	w.exec.Argv = r.image.Command(r.call.Entrypoint, r.call.Argv)
	if len(w.exec.Argv) == 0 {
		return &sandbox.Error{Op: "run", Kind: sandbox.ErrInvalid, Problem: "there is no command, and the image names none", Hint: "write one after --"}
	}
	if v := r.s.o.Policy.Starts(&r.call.Call, w.exec.Argv); v != nil {
		if v.Decision != policy.Ask {
			return v.Err()
		}
		if r.question = merge(r.question, v.Question); len(r.question.Channels) == 0 {
			return v.Err()
		}
	}
	r.intent.Argv = w.exec.Argv
	return nil
}

// noImage refuses flags about an image where there is none; why is what there is not to
// replace.
func (r *run) noImage(why string) error {
	switch {
	case r.call.Entrypoint != nil:
		return &sandbox.Error{Op: "--entrypoint", Kind: sandbox.ErrInvalid, Problem: why, Hint: "write the command after --"}
	case r.call.InsecureRegistry:
		return noRegistry("there is no image to pull")
	}
	return nil
}

func noRegistry(why string) error {
	return &sandbox.Error{Op: "--insecure-registry", Kind: sandbox.ErrInvalid, Problem: why, Hint: "name one in a registry with --image, or leave it out"}
}

// imageDir is the image's working directory, unless a private directory hides
// it: that is empty.
func (r *run) imageDir() string {
	if r.image == nil {
		return ""
	}
	dir := r.image.Config.WorkingDir
	if r.isWritable(dir) && !slices.Contains(r.plan.Writable, dir) {
		return ""
	}
	return dir
}

// isWritable says whether a path inside is in a private directory.
func (r *run) isWritable(p string) bool {
	return slices.ContainsFunc(r.plan.Writable, func(dir string) bool { return sandbox.Within(p, dir) })
}
