// SPDX-License-Identifier: Apache-2.0

package changes

import (
	"io"
	"path"
	"slices"
	"strings"

	"github.com/caisson-run/caisson/internal/hostpath"
)

// maxIndex bounds an index of git's that is read, in bytes.
const maxIndex = 128 << 20

// tracked says that git tracks a file of the host, or something in a directory: what is
// tracked is not ignored, whatever the rules say.
func (g *ignores) tracked(at string, dir bool) bool {
	if base, err := g.host.look(at); err == nil && base == nil {
		return false // it is new: the index need not be read
	}
	if !g.indexRead {
		g.index, g.indexRead = trackedPaths(g.host), true
	}
	if dir {
		at += "/"
	}
	i, ok := slices.BinarySearch(g.index, at)
	return ok || dir && i < len(g.index) && strings.HasPrefix(g.index[i], at)
}

// trackedPaths reads git's index, sorted. What cannot be read tracks nothing.
func trackedPaths(h *host) (paths []string) {
	for name := "index"; name != ""; {
		f, err := h.open(path.Join(".git", name))
		if err != nil {
			return nil
		}
		text, err := io.ReadAll(io.LimitReader(f, maxIndex+1))
		f.Close()
		if err != nil || len(text) > maxIndex {
			return nil
		}
		more, shared, err := hostpath.TrackedPaths(text)
		if err != nil || shared == name {
			return nil
		}
		paths, name = append(paths, more...), shared
		if len(paths) > len(more) {
			break // what is shared has nothing shared of its own
		}
	}
	slices.Sort(paths)
	return paths
}
