// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"context"
	"io"
	"slices"

	"github.com/caisson-run/caisson/image"
	"github.com/caisson-run/caisson/image/reference"
	"github.com/caisson-run/caisson/sandbox"
)

// findImage finds the plan's container image and, when it is not here yet, gets
// it. What it says of its user counts from here on; [image.Stored] has the rules.
// A directory that is no image is another root filesystem.
func (e *Environment) findImage(ctx context.Context) error {
	p := e.o.Plan.Image
	if p == nil {
		return e.noImage("there is no image whose program it would replace")
	}
	ref, err := reference.Parse(p.Ref)
	if err != nil {
		return err
	}
	o := image.PullOptions{Insecure: e.o.Call.InsecureRegistry, Owner: e.o.Owner, Digest: e.o.Digest, Progress: e.o.Progress}
	if p.Path != nil {
		src, err := e.o.Host.Open(*p.Path, "image", sandbox.ReadOnly)
		if err != nil {
			return err
		}
		if image.IsTree(ref, src.File) {
			e.o.Plan.Rootfs = p.Path
			return e.noImage("a plain directory has none")
		}
		if e.o.Call.InsecureRegistry {
			return noRegistry("the image comes from no registry")
		}
		o.File = src.File
	}
	if !e.o.Caps.Images {
		return &sandbox.Error{Op: "--image", Kind: sandbox.ErrUnsupported, Problem: e.o.Plan.Isolation + " takes no container images", Hint: "take another level, or unpack it and give --rootfs DIR"}
	}
	if e.store, err = image.OpenStore(e.o.Images); err != nil {
		return err
	}
	var held io.Closer
	if e.Image, held, err = e.store.Hold(ctx, ref, o); err != nil {
		return err
	}
	e.o.Host.Undo.Close(held)
	e.Spec.User, e.ImageEnv = e.Image.User, e.Image.Config.Env
	if e.o.Plan.Root {
		e.Spec.User = e.Image.Root
	}
	for _, n := range e.Image.Notes {
		e.o.Notice(n)
	}
	return nil
}

// imageFile reads a file of the image, of at most maximum bytes. What is not there is
// fs.ErrNotExist.
func (e *Environment) imageFile(path string, maximum int64) ([]byte, error) {
	if s := e.o.Step; s != nil {
		return s.Tree.ReadFile(path, maximum)
	}
	return e.store.ReadFile(e.Image, path, maximum)
}

// builtHome says whether a template brings p as a home, which no scratch may hide: that of
// who runs, and where root runs the user's too, as both are in its root file system.
func (e *Environment) builtHome(p string) bool {
	return e.Image != nil && e.Image.Built && (p == e.Spec.User.Home || e.Spec.Sudo && p == sandbox.DefaultUser().Home)
}

// noImage refuses flags about an image where there is none; why is what there is not to
// replace.
func (e *Environment) noImage(why string) error {
	switch {
	case e.o.Call.Entrypoint != nil:
		return &sandbox.Error{Op: "--entrypoint", Kind: sandbox.ErrInvalid, Problem: why, Hint: "write the command after --"}
	case e.o.Call.InsecureRegistry:
		return noRegistry("there is no image to pull")
	}
	return nil
}

func noRegistry(why string) error {
	return &sandbox.Error{Op: "--insecure-registry", Kind: sandbox.ErrInvalid, Problem: why, Hint: "name one in a registry with --image, or leave it out"}
}

// imageDir is the image's working directory, unless a private directory hides
// it: that is empty.
func (e *Environment) imageDir() string {
	if e.Image == nil {
		return ""
	}
	dir := e.Image.Config.WorkingDir
	if home := e.Spec.User.Home; e.builtHome(home) && sandbox.Within(dir, home) {
		return dir
	}
	if e.isWritable(dir) && !slices.Contains(e.o.Plan.Writable, dir) {
		return ""
	}
	return dir
}

// isWritable says whether a path inside is in a private directory.
func (e *Environment) isWritable(p string) bool {
	return slices.ContainsFunc(e.o.Plan.Writable, func(dir string) bool { return sandbox.Within(p, dir) })
}
