// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package image

import (
	"context"
	"io"
	"os"

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

// IsTree is not supported here.
func IsTree(reference.Ref, *os.File) bool { return false }
