// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package volume

import (
	"github.com/caisson-run/caisson/internal/hostpath"
	"github.com/caisson-run/caisson/sandbox"
)

func unsupported(op string) error {
	return sandbox.Errorf(sandbox.ErrUnsupported, op, "volumes are kept on Linux")
}

// Use is not known here.
func (s *Store) Use(o Options) (*hostpath.Source, error) {
	return nil, unsupported("volume " + o.Name)
}

// List is not known here.
func (s *Store) List() ([]Volume, error) { return nil, unsupported("list the volumes") }

// Look is not known here.
func (s *Store) Look(string, *hostpath.Source) (*Volume, error) {
	return nil, unsupported("look at a volume")
}

// Find is not known here.
func (s *Store) Find(id string) (*Volume, error) { return nil, unsupported("volume " + id) }

// Remove is not known here.
func (s *Store) Remove(id string) error { return unsupported("remove volume " + id) }
