// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package image

import (
	"context"
	"io"
	"os"
	"time"

	"github.com/caisson-run/caisson/image/fstree"
	"github.com/caisson-run/caisson/image/reference"
	"github.com/caisson-run/caisson/sandbox"
)

// Store is not supported here.
type Store struct{}

func noStore() error {
	return &sandbox.Error{Op: "image store", Kind: sandbox.ErrUnsupported, Problem: "images are unpacked on Linux only", Hint: "run caisson on Linux"}
}

// OpenStore is not supported here.
func OpenStore(string) (*Store, error) { return nil, noStore() }

// FindStore is not supported here.
func FindStore(string) (*Store, error) { return nil, noStore() }

// KeepWhile is not supported here.
func (*Store) KeepWhile(func(string) (bool, error)) {}

// Get is not supported here.
func (*Store) Get(context.Context, reference.Ref, PullOptions) (*Stored, error) {
	return nil, noStore()
}

// Hold is not supported here.
func (*Store) Hold(context.Context, reference.Ref, PullOptions) (*Stored, io.Closer, error) {
	return nil, nil, noStore()
}

// ReadFile is not supported here.
func (*Store) ReadFile(*Stored, string, int64) ([]byte, error) { return nil, noStore() }

// Pull is not supported here.
func (*Store) Pull(context.Context, reference.Ref, PullOptions) (*Stored, error) {
	return nil, noStore()
}

// Root is not supported here.
func (*Store) Root(context.Context, *Stored, RootOptions) (*Root, error) { return nil, noStore() }

// List is not supported here.
func (*Store) List() ([]*Stored, error) { return nil, noStore() }

// Find is not supported here.
func (*Store) Find(string) (*Stored, error) { return nil, noStore() }

// Remove is not supported here.
func (*Store) Remove(*Stored) error { return noStore() }

// Prune is not supported here.
func (*Store) Prune(bool) ([]*Stored, error) { return nil, noStore() }

// Discard is not supported here.
func (*Store) Discard(*Stored) error { return noStore() }

// IsTree is not supported here.
func IsTree(reference.Ref, *os.File) bool { return false }

// Home is not supported here.
func (*Store) Home(*Stored) (*os.File, error) { return nil, noStore() }

// Build is not supported here.
func (*Store) Build(*Stored) (*Builder, error) { return nil, noStore() }

// Builder is not supported here.
type Builder struct{}

// Put is not supported here.
func (*Builder) Put(context.Context, io.Reader) error { return noStore() }

// Add is not supported here.
func (*Builder) Add(context.Context, io.Reader) error { return noStore() }

// Tree is not supported here.
func (*Builder) Tree() *fstree.Node { return nil }

// Read is not supported here.
func (*Builder) Read(*fstree.Node) (io.Reader, error) { return nil, noStore() }

// ReadFile is not supported here.
func (*Builder) ReadFile(string, int64) ([]byte, error) { return nil, noStore() }

// Root is not supported here.
func (*Builder) Root(Config, RootOptions) (*Root, *Stored, error) { return nil, nil, noStore() }

// Account is not supported here.
func (*Builder) Account(string) (sandbox.User, error) { return sandbox.User{}, noStore() }

// Finish is not supported here.
func (*Builder) Finish(context.Context, string, Config) (*Stored, error) { return nil, noStore() }

// Close is not supported here.
func (*Builder) Close() error { return nil }

// Template is not supported here.
type Template struct {
	Name, Tag, Owner string
	Named            time.Time
	Shared           bool
	Image            *Stored
}

// Share is not supported here.
func (*Store) Share(reference.Ref, bool) error { return noStore() }

// MayHave is not supported here.
func (*Store) MayHave(reference.Ref, string) bool { return false }

// Has is not supported here.
func (*Store) Has(string) bool { return false }

// Size is not supported here.
func (*Store) Size(string) int64 { return 0 }

// Owns is not supported here.
func (*Store) Owns(reference.Ref, string) bool { return false }

// Name is not supported here.
func (*Store) Name(reference.Ref, string, *Stored) error { return noStore() }

// Templates is not supported here.
func (*Store) Templates(string) ([]Template, error) { return nil, noStore() }

// Unname is not supported here.
func (*Store) Unname(reference.Ref, string) error { return noStore() }

// Step is not supported here.
func (*Store) Step(string) (*os.File, error) { return nil, noStore() }

// KeepStep is not supported here.
func (*Store) KeepStep(context.Context, string, func(*os.File) error) (*os.File, error) {
	return nil, noStore()
}

// DropStep is not supported here.
func (*Store) DropStep(string) bool { return false }

// Info is not supported here.
func (*Store) Info(string) (*Stored, error) { return nil, noStore() }

// HostDigest is not supported here.
func HostDigest() (string, error) { return "", noStore() }

// PutHost is not supported here.
func (*Builder) PutHost(context.Context) error { return noStore() }

// Opened is not supported here.
type Opened struct{ Tree *fstree.Node }

// Open is not supported here.
func (*Store) Open(*Stored) (*Opened, error) { return nil, noStore() }

// Read is not supported here.
func (*Opened) Read(*fstree.Node) io.Reader { return nil }

// Close is not supported here.
func (*Opened) Close() error { return nil }

// FindTemplate is not supported here.
func (*Store) FindTemplate(reference.Ref, string) (*Template, error) { return nil, noStore() }

// PruneSteps is not supported here.
func (*Store) PruneSteps(int64) (int, error) { return 0, noStore() }

// Sweep is not supported here.
func (*Store) Sweep() {}

// Packs is not supported here.
type Packs struct{}

// FindPacks is not supported here.
func FindPacks(string) (*Packs, error) { return nil, noStore() }

// List is not supported here.
func (*Packs) List() []*Pack { return nil }

// Find is not supported here.
func (*Packs) Find(string) (*Pack, error) { return nil, noStore() }

// Remove is not supported here.
func (*Packs) Remove(*Pack) error { return noStore() }

// Prune is not supported here.
func (*Packs) Prune(bool) []*Pack { return nil }
