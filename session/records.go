// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/caisson-run/caisson/audit"
	"github.com/caisson-run/caisson/sandbox"
)

// records is the journal of sandboxes, with a bound to what each key adds to it in a
// day: what one key has written must not leave the others without a disk. A key that
// has used it up begins nothing more; what it has begun ends, and is recorded.
//
// It counts in memory, from when this process began.
type records struct {
	Journal
	clock Clock
	free  bool // there is one user, for whom nothing is bounded

	mu sync.Mutex
	of map[string]*account // by actor; of keys alone
}

// account is what one key has written lately.
type account struct {
	most  int64 // bytes in a day; 0 is no bound
	hours [24]int64
	hour  int64 // the newest of them, since 1970
	told  int64 // the last in which it is recorded that there was no room
}

// meteredJournal is a Journal that says what it has written, and for whom.
type meteredJournal interface {
	Meter(wrote func(actor string, bytes int64))
}

func newRecords(o *SandboxesOptions) *records {
	r := &records{Journal: o.Journal, clock: o.Clock, free: o.Private, of: map[string]*account{}}
	if m, ok := o.Journal.(meteredJournal); ok && !r.free {
		m.Meter(r.wrote)
	}
	return r
}

// know says how much a key may write.
func (r *records) know(k *Key, most int64) {
	if k.ID == "" || r.free { // nobody's, or the only one's
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.of[k.Actor()] == nil {
		r.of[k.Actor()] = &account{}
	}
	r.of[k.Actor()].most = most
}

// at is an actor's account, with the hours that are over taken from it; nil for whom
// nothing is bounded. The caller holds mu.
func (r *records) at(actor string) *account {
	a := r.of[actor]
	if a == nil {
		return nil
	}
	now := r.clock.Now().Unix() / int64(time.Hour/time.Second)
	if now-a.hour >= int64(len(a.hours)) {
		clear(a.hours[:])
	} else {
		for h := a.hour + 1; h <= now; h++ {
			a.hours[h%int64(len(a.hours))] = 0
		}
	}
	a.hour = max(a.hour, now)
	return a
}

func (r *records) wrote(actor string, bytes int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if a := r.at(actor); a != nil {
		a.hours[a.hour%int64(len(a.hours))] += bytes
	}
}

// room is an error where an actor has written as much as it may. first says that it is
// the first one of this hour.
func (r *records) room(actor string) (first bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := r.at(actor)
	if a == nil || a.most <= 0 {
		return false, nil
	}
	var all int64
	for _, n := range a.hours {
		all += n
	}
	if all < a.most {
		return false, nil
	}
	first = a.told != a.hour
	a.told = a.hour
	return first, &sandbox.Error{Op: "quota", Kind: sandbox.ErrExhausted, Problem: fmt.Sprintf("the key's records of a day take the %s that they may", Size(a.most)),
		Hint: "wait some hours; who runs this caisson may give the key a profile with more records", Rule: ruleQuota}
}

// Begin implements Journal. What ends something has always room.
func (r *records) Begin(ctx context.Context, in audit.Intent) (*audit.Entry, error) {
	if !in.Ends {
		if err := r.admit(ctx, &in); err != nil {
			return nil, err
		}
	}
	return r.Journal.Begin(ctx, in)
}

// Refuse implements Journal.
func (r *records) Refuse(ctx context.Context, in audit.Intent, out audit.Outcome) error {
	if err := r.admit(ctx, &in); err != nil {
		return err
	}
	return r.Journal.Refuse(ctx, in, out)
}

// Connections implements Journal. Those of one call are one key's.
func (r *records) Connections(ctx context.Context, list []audit.Connection) error {
	if len(list) > 0 {
		if _, err := r.room(list[0].Actor); err != nil {
			return err
		}
	}
	return r.Journal.Connections(ctx, list)
}

// admit refuses what there is no room for, and has it recorded now and then that it
// does.
func (r *records) admit(ctx context.Context, in *audit.Intent) error {
	first, err := r.room(in.Actor)
	if !first {
		return err
	}
	res := &sandbox.Result{Status: sandbox.StatusDenied, Reason: err.Error(), Rule: ruleQuota}
	if jerr := r.Journal.Refuse(ctx, audit.Intent{Actor: in.Actor, Kind: in.Kind, Sandbox: in.Sandbox}, audit.Outcome{Status: audit.Refused, Error: err.Error(), Result: res}); jerr != nil {
		return jerr
	}
	return err
}

// Soon passes on what the journal may want to know; see soonJournal.
func (r *records) Soon() {
	if j, ok := r.Journal.(soonJournal); ok {
		j.Soon()
	}
}
