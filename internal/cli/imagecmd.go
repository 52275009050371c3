// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/image"
	"github.com/caisson-run/caisson/image/reference"
	"github.com/caisson-run/caisson/internal/store"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session/registry"
)

func (a *app) imageCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "image",
		Short: "Get, list and remove container images",
		Long: `Get, list and remove the container images that run --image uses.

An image is kept under the digest of its manifest, unpacked once and shared by
all runs, read-only. A tag means what it meant when it was pulled, until it is
pulled again. Credentials are those of docker login.

Beside them are packs: what run --isolation microvm without an image shows of this
host, or of a --rootfs, in one file. They are made anew when that changes.`,
		Example: `  caisson image pull python:3.14-slim
  caisson image ls
  caisson image rm python:3.14-slim
  caisson image prune`,
		Args:          a.unknownCommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		SilenceErrors: true, SilenceUsage: true,
	}
	cmd.AddCommand(a.imagePull(), a.imageList(), a.imageRemove(), a.imagePrune())
	a.inState(cmd.Commands()...)
	return cmd
}

// packs are those of virtual machines in the state directory.
func (a *app) packs() (*image.Packs, func() error, error) {
	dir, err := store.Open(a.look())
	if err != nil {
		return nil, nil, err
	}
	p, err := image.FindPacks(image.PacksIn(dir.Path()))
	if err != nil {
		dir.Close()
		return nil, nil, err
	}
	return p, dir.Close, nil
}

// images opens the store that runs use. Only who pulls an image makes it.
func (a *app) images(makes bool) (*image.Store, func() error, error) {
	dir, err := store.Open(store.Options{Dir: a.state, ReadOnly: !makes})
	if err != nil {
		return nil, nil, err
	}
	open := image.FindStore
	if makes {
		open = image.OpenStore
	}
	s, err := open(filepath.Join(dir.Path(), "images"))
	if err != nil {
		dir.Close()
		return nil, nil, err
	}
	goes, done := goesOn(dir.Path())
	s.KeepWhile(goes)
	return s, func() error { return errors.Join(done(), dir.Close()) }, nil
}

// goesOn says of an image whether a sandbox of a state directory may go on with it. The
// registry is opened once, when that is first asked; done closes it.
func goesOn(state string) (goes func(digest string) (bool, error), done func() error) {
	closes := func() error { return nil }
	open := sync.OnceValues(func() (*registry.DB, error) {
		db, err := registry.Look(context.Background(), state)
		if err == nil {
			closes = db.Close
		}
		return db, err
	})
	goes = func(digest string) (bool, error) {
		if !registry.Here(state) {
			return false, nil
		}
		db, err := open()
		if err != nil {
			return false, err
		}
		return db.GoesOn(context.Background(), digest)
	}
	return goes, func() error { return closes() }
}

// localImage reads a reference; a path in it becomes absolute here, the last
// place that knows the working directory.
func localImage(s string) (reference.Ref, error) {
	r, err := reference.Parse(s)
	if err != nil {
		return r, err
	}
	if !r.Local() {
		// Who names an archive that is here means it.
		if info, err := os.Stat(s); err == nil && info.Mode().IsRegular() {
			return r, &sandbox.Error{Op: "image " + sandbox.Quoted(s), Kind: sandbox.ErrInvalid, Problem: "a path begins with / or ./, and this is read as an image of " + r.Host,
				Hint: "write ./" + s + " for the file that is here"}
		}
		return r, nil
	}
	wd, err := os.Getwd()
	if err != nil {
		return r, &sandbox.Error{Op: "image " + sandbox.Quoted(s), Kind: sandbox.ErrInvalid, Problem: "the working directory cannot be found", Hint: "give an absolute path", Cause: err}
	}
	return r.At(wd), nil
}

func (a *app) imagePull() *cobra.Command {
	var asJSON, insecure bool
	cmd := &cobra.Command{
		Use:   "pull IMAGE",
		Short: "Get an image, or what its tag means now",
		Example: `  caisson image pull python:3.14-slim
  caisson image pull ghcr.io/acme/tool@sha256:0123…
  caisson image pull ./image.tar
  caisson image pull --insecure-registry registry.lan:5000/tool`,
		Args: one("an image", "for example caisson image pull python:3.14"),
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := localImage(args[0])
			if err != nil {
				return err
			}
			s, done, err := a.images(true)
			if err != nil {
				return err
			}
			defer done()
			bar := a.startProgress("pulling " + r.Familiar())
			ctx, stop := signal.NotifyContext(contextOf(cmd), os.Interrupt, syscall.SIGTERM) // so that nothing half done stays
			defer stop()
			info, err := s.Pull(ctx, r, image.PullOptions{Insecure: insecure, Progress: bar.set})
			bar.end()
			if err != nil {
				return err
			}
			if asJSON {
				a.printJSON(info)
				return nil
			}
			fmt.Fprintln(a.out, info.Digest)
			for _, n := range info.Notes {
				a.note("%s", n)
			}
			return nil
		},
		ValidArgsFunction: a.completeImages,
		SilenceErrors:     true, SilenceUsage: true,
	}
	cmd.Flags().BoolVar(&insecure, "insecure-registry", false, "ask the registry without TLS")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

func (a *app) imageList() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "List the images, and the packs of virtual machines, that are here",
		Example: `  caisson image ls
  caisson image ls --json`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			s, done, err := a.images(false)
			if err != nil {
				return err
			}
			defer done()
			p, release, err := a.packs()
			if err != nil {
				return err
			}
			defer release()
			list, err := s.List()
			if err != nil {
				return err
			}
			packs := p.List()
			if asJSON {
				a.printJSON(map[string]any{"images": orEmpty(list), "packs": orEmpty(packs)})
				return nil
			}
			w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "DIGEST\tSIZE\tFILES\tUNPACKED\tNAMES")
			for _, i := range list {
				fmt.Fprintf(w, "%.19s\t%s\t%d\t%s\t%s\n", i.Digest, mib(i.Size), i.Files, i.Made.Local().Format("2006-01-02 15:04"), dash(strings.Join(i.Names, " ")))
			}
			if err := w.Flush(); err != nil || len(packs) == 0 {
				return err
			}
			fmt.Fprintln(a.out)
			return a.listPacks(packs)
		},
		SilenceErrors: true, SilenceUsage: true,
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

// listPacks prints what was packed for virtual machines.
func (a *app) listPacks(packs []*image.Pack) error {
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "PACK\tSIZE\tFILES\tUSED\tMADE OF")
	for _, p := range packs {
		used := p.Used.Local().Format("2006-01-02 15:04")
		if p.InUse {
			used = "now"
		}
		of := map[string]string{"": "-", image.FromHost: "this host's programs"}[p.From]
		if of == "" {
			of = printable(p.From)
		}
		fmt.Fprintf(w, "%.19s\t%s\t%d\t%s\t%s\n", p.Digest, mib(p.Size), p.Files, used, of)
	}
	return w.Flush()
}

// orEmpty is a list that JSON has as one.
func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

func (a *app) imageRemove() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "rm IMAGE",
		Short: "Remove an image with all its names, or a pack",
		Example: `  caisson image rm python:3.14-slim
  caisson image rm 0123456789ab`,
		Args: one("an image", "caisson image ls lists what is here"),
		RunE: func(_ *cobra.Command, args []string) error {
			s, done, err := a.images(false)
			if err != nil {
				return err
			}
			defer done()
			info, err := s.Find(args[0])
			if errors.Is(err, sandbox.ErrNotFound) {
				return a.removePack(args[0], asJSON)
			}
			if err != nil {
				return err
			}
			if err := s.Remove(info); err != nil {
				return err
			}
			return a.removed([]string{info.Digest}, asJSON)
		},
		ValidArgsFunction: a.completeImages,
		SilenceErrors:     true, SilenceUsage: true,
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

// removePack removes a pack by the beginning of its digest.
func (a *app) removePack(name string, asJSON bool) error {
	p, done, err := a.packs()
	if err != nil {
		return err
	}
	defer done()
	one, err := p.Find(name)
	if err != nil {
		return err
	}
	if err := p.Remove(one); err != nil {
		return err
	}
	return a.removed([]string{one.Digest}, asJSON)
}

func (a *app) imagePrune() *cobra.Command {
	var all, asJSON bool
	cmd := &cobra.Command{
		Use:   "prune",
		Short: "Remove the images that no name leads to any more, and old packs",
		Long: `Remove the images that no name leads to any more: their tags were pulled
again, or they came from files. So go packs for virtual machines of what has
changed since. With --all every image and pack goes. One that a sandbox runs on
stays, and an image that a paused sandbox or a snapshot goes on with. A pack that
one of them was made of may go: it begins anew with its files then.`,
		Example: `  caisson image prune
  caisson image prune --all`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			s, done, err := a.images(false)
			if err != nil {
				return err
			}
			defer done()
			p, release, err := a.packs()
			if err != nil {
				return err
			}
			defer release()
			gone, err := s.Prune(all)
			if err != nil {
				return err
			}
			var digests []string
			for _, i := range gone {
				digests = append(digests, i.Digest)
			}
			for _, one := range p.Prune(all) {
				digests = append(digests, one.Digest)
			}
			return a.removed(digests, asJSON)
		},
		SilenceErrors: true, SilenceUsage: true,
	}
	cmd.Flags().BoolVar(&all, "all", false, "remove every image and pack that is not in use")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

// removed says what is gone, by digests.
func (a *app) removed(gone []string, asJSON bool) error {
	if asJSON {
		a.printJSON(map[string]any{"removed": orEmpty(gone)})
		return nil
	}
	for _, digest := range gone {
		fmt.Fprintf(a.out, "removed %s\n", digest)
	}
	return nil
}

// one is for commands that take exactly one argument.
func one(what, hint string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 1 {
			return nil
		}
		return usage(cmd, "it takes "+what, hint)
	}
}

// completeImages offers the names of the images that are here, and files.
func (a *app) completeImages(_ *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	if reference.IsPath(typed) {
		return nil, cobra.ShellCompDirectiveDefault
	}
	s, done, err := a.images(false)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	defer done()
	list, _ := s.List()
	var names []string
	for _, i := range list {
		for _, n := range i.Names {
			if strings.HasPrefix(n, typed) {
				names = append(names, n)
			}
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
