// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"context"
	"fmt"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
	"github.com/caisson-run/caisson/session/registry"
)

// Quota bounds what all sandboxes of one key have together; 0 is no bound.
// Limits count, not use: a quota that holds never makes a sandbox fail later. Of
// snapshots it is their size, which is known when they are written.
type Quota struct {
	Sandboxes int     // that run
	Paused    int     // that are paused
	CPUs      float64 // of those that run
	Memory    int64   // bytes, of those that run
	// Disk is bytes: the scratch that those have which run or are paused, /tmp
	// included, and what the key's snapshots take.
	Disk      int64
	Snapshots int
	// Templates is how many names of templates the key has, each with its tag, and
	// TemplateSize the bytes of their files; of one under several names they count once.
	// Files of one that lost its name count while a sandbox or a snapshot goes on with it.
	Templates    int
	TemplateSize int64
	// Records is how many bytes the key's calls may add to the audit log in a day. It
	// is use that counts here.
	Records int64
}

const ruleQuota = "built-in: quota"

// quotaMark is what a sandbox counts for besides what its record says.
type quotaMark struct {
	reserved sandbox.Limits // until it runs for the first time
	pausing  bool           // it has a place among the paused ones
	waking   bool           // it has a place among those that run
}

// stake is what a sandbox counts for in a quota.
type stake struct {
	state   registry.State
	pausing bool // counts as paused already: a burst of pauses gets no more than one would
	holds   bool // paused, with its memory where it is
	limits  sandbox.Limits
	kept    int64 // bytes of its memory on the disk
}

func (l *managed) stake() stake {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.rec.State == "" {
		return stake{state: registry.Running, limits: l.quota.reserved}
	}
	state := l.rec.State
	if l.quota.waking {
		state = registry.Running
	}
	var kept int64
	if l.rec.Seal != nil {
		kept = l.rec.Seal.Bytes
	}
	return stake{state, l.quota.pausing, l.frozen != nil || l.in != nil, l.rec.Limits, kept}
}

// place has taken mark that a sandbox takes a place for a change to state, if the quota of its
// key has room.
func (n *inventory) place(l *managed, q Quota, state registry.State, taken func()) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if state == registry.Running {
		if err := n.background.open(); err != nil {
			return err
		}
	}
	if err := n.fits(l, q, l.record().Limits, state); err != nil {
		return err
	}
	taken()
	return nil
}

// fits says whether the quota of its owner has room for l in state with limits. The caller
// holds mu.
func (n *inventory) fits(l *managed, q Quota, limits sandbox.Limits, state registry.State) error {
	running, paused, cpus, memory, disk := 0, 0, limits.CPUs, limits.Memory, limits.Disk+limits.Tmp+n.written[l.owner]
	for _, other := range n.all {
		if other == l || other.owner != l.owner {
			continue
		}
		have := other.stake()
		if have.state == registry.Ended {
			continue
		}
		if have.pausing || have.state == registry.Paused {
			paused++
		}
		if have.state != registry.Paused {
			running++
			cpus += have.limits.CPUs
		}
		if have.state != registry.Paused || have.holds {
			memory += have.limits.Memory
		}
		disk += have.limits.Disk + have.limits.Tmp + have.kept
	}
	full := func(what string) error {
		return &sandbox.Error{Op: "quota", Kind: sandbox.ErrExhausted, Problem: "the key's sandboxes have all " + what + " that it may have",
			Hint: "end one of them", Rule: ruleQuota}
	}
	switch {
	case state == registry.Paused:
		if q.Paused > 0 && paused >= q.Paused {
			return full(fmt.Sprintf("%d places for paused ones", q.Paused))
		}
	case q.Sandboxes > 0 && running >= q.Sandboxes:
		return full(fmt.Sprintf("%d places", q.Sandboxes))
	case q.CPUs > 0 && cpus > q.CPUs:
		return full(fmt.Sprintf("%g processors", q.CPUs))
	case q.Memory > 0 && memory > q.Memory:
		return full("memory of " + session.Size(q.Memory))
	}
	if q.Disk > 0 && disk > q.Disk {
		return full("disk of " + session.Size(q.Disk))
	}
	return nil
}

// disk is what the sandboxes of a key may write, and what its snapshots take, in bytes. The
// caller holds mu.
func (n *inventory) disk(owner string) int64 {
	all := n.written[owner]
	for _, l := range n.all {
		if have := l.stake(); l.owner == owner && have.state != registry.Ended {
			all += have.limits.Disk + have.limits.Tmp + have.kept
		}
	}
	return all
}

// keptRoom refuses memory on the disk that the key has no room for.
func (n *inventory) keptRoom(l *managed, q Quota, bytes int64) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if have := n.disk(l.owner); q.Disk > 0 && have+bytes > q.Disk {
		return &sandbox.Error{Op: "quota", Kind: sandbox.ErrExhausted, Rule: ruleQuota, Hint: "delete a snapshot, or end a sandbox",
			Problem: fmt.Sprintf("what is kept of it takes %s, and the key has %s of its %s of disk", session.Size(bytes), session.Size(have), session.Size(q.Disk))}
	}
	return nil
}

// snapshotPlace takes a place for one more snapshot of a key, until leave. Those that are
// being written count: a burst of calls gets no more than their sum.
func (n *inventory) snapshotPlace(ctx context.Context, r *registry.DB, owner string, q Quota) (leave func(), _ error) {
	n.mu.Lock()
	n.writing[owner]++
	writing := n.writing[owner]
	n.mu.Unlock()
	leave = func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.writing[owner]--; n.writing[owner] == 0 {
			delete(n.writing, owner)
		}
	}
	have, err := r.Snapshots(ctx, owner)
	if err == nil && q.Snapshots > 0 && len(have)+writing > q.Snapshots {
		err = &sandbox.Error{Op: "quota", Kind: sandbox.ErrExhausted, Problem: fmt.Sprintf("the key has %d snapshots, and %d are being written", len(have), writing-1),
			Hint: "delete one", Rule: ruleQuota}
	}
	if err != nil {
		leave()
		return nil, err
	}
	return leave, nil
}

// takeRoom takes the room of a snapshot that was written: how large it is was not known before.
func (n *inventory) takeRoom(s *Snapshot, q Quota) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if have := n.disk(s.Owner); q.Disk > 0 && have+s.Bytes > q.Disk {
		return &sandbox.Error{Op: "quota", Kind: sandbox.ErrExhausted, Problem: fmt.Sprintf("the snapshot takes %s, and the key has %s of its %s", session.Size(s.Bytes), session.Size(have), session.Size(q.Disk)),
			Hint: "delete another one, or end a sandbox", Rule: ruleQuota}
	}
	n.written[s.Owner] += s.Bytes
	return nil
}

// addSnapshot takes the room of a snapshot that was written, and writes down whose it is.
func (n *inventory) addSnapshot(ctx context.Context, r *registry.DB, s *Snapshot, q Quota) error {
	if err := n.takeRoom(s, q); err != nil {
		return err
	}
	err := r.PutSnapshot(context.WithoutCancel(ctx), s)
	if err != nil {
		n.giveRoom(s)
	}
	return err
}

// giveRoom gives the room of a snapshot back.
func (n *inventory) giveRoom(s *Snapshot) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.written[s.Owner] -= s.Bytes; n.written[s.Owner] <= 0 {
		delete(n.written, s.Owner)
	}
}
