// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"maps"
	"slices"
	"sync"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session/registry"
)

// inventory is what there is of all keys: sandboxes, and the size of snapshots. A place of a
// quota is counted and taken under its mu, in one step.
type inventory struct {
	background *background

	mu  sync.Mutex
	all map[string]*managed // by their IDs
	// writing counts snapshots that are being written, by their key.
	writing map[string]int
	// written is how many bytes of snapshots there are, by their key.
	written map[string]int64
}

func newInventory(g *background) *inventory {
	return &inventory{background: g, all: map[string]*managed{}, writing: map[string]int{}, written: map[string]int64{}}
}

// get finds a sandbox by its ID, also one that is being made; nil without.
func (n *inventory) get(id string) *managed {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.all[id]
}

// named finds a key's sandbox by its name, also one that is being made; nil without.
func (n *inventory) named(owner, name string) *managed {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.namedLocked(owner, name)
}

// namedLocked is named for who holds mu.
func (n *inventory) namedLocked(owner, name string) *managed {
	for _, l := range n.all {
		if l.owner == owner && l.name == name {
			return l
		}
	}
	return nil
}

// list is all sandboxes, those of all keys.
func (n *inventory) list() []*managed {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Collect(maps.Values(n.all))
}

// add takes a place for a sandbox that is about to be made.
func (n *inventory) add(l *managed, q Quota) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.background.open(); err != nil {
		return err
	}
	if l.name != "" && n.namedLocked(l.owner, l.name) != nil {
		return errNameTaken
	}
	if err := n.fits(l, q, l.quota.reserved, registry.Running); err != nil {
		return err
	}
	n.all[l.id] = l
	return nil
}

// errNameTaken says that there is such a sandbox now.
var errNameTaken = sandbox.Errorf(sandbox.ErrConflict, "create sandbox", "there is one with this name")

// put adds a sandbox that has its place already.
func (n *inventory) put(l *managed) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.all[l.id] = l
}

// remove gives the place of a sandbox back.
func (n *inventory) remove(l *managed) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.all, l.id)
}
