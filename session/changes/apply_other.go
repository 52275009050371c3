// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package changes

import (
	"context"
	"os"
	"time"
)

// host is not known here: sets are made and applied on Linux.
type host struct {
	root  *os.File
	began time.Time
}

func (h *host) look(string) (*Base, error) { return nil, unsupported("look at a workspace") }
func (h *host) since(*Base) bool           { return false }

// NamedByGit is of Linux.
func NamedByGit(*os.File, []Entry) Named { return nil }

func (h *host) shows(string) (bool, error)      { return false, unsupported("look at a workspace") }
func (h *host) open(string) (*os.File, error)   { return nil, unsupported("look at a workspace") }
func (h *host) list(string) ([]string, error)   { return nil, unsupported("look at a workspace") }
func (h *host) readlink(string) (string, error) { return "", unsupported("look at a workspace") }
func elsewhere(error) bool                      { return false }
func identity(*os.File) (dev, inode uint64, err error) {
	return 0, 0, unsupported("look at a workspace")
}
func (s *Store) abandon(string) {}

func openRoot(*Set, *ApplyOptions) (*os.File, error) { return nil, unsupported("apply a change set") }

func (s *Store) apply(context.Context, *selection, *ApplyOptions, *os.File) (*Applied, error) {
	return nil, unsupported("apply a change set")
}

// Clock is the time as the host's file systems stamp it.
func Clock(time.Time) time.Time { return time.Now() }
