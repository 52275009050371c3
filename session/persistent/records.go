// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/caisson-run/caisson/audit"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
	"github.com/caisson-run/caisson/session/registry"
)

// records is the journal of sandboxes, with a bound to what each key adds to it in a
// day: what one key has written must not leave the others without a disk. A key that
// has used it up begins nothing more; what it has begun ends, and is recorded.
//
// It counts in memory, by the keys' IDs, and keeps that in the registry: of what was
// counted before this process began a part of unsavedPart is lost where its owner was
// killed.
type records struct {
	audit.Journal
	clock    Clock
	registry *registry.DB
	free     bool // there is one user, for whom nothing is bounded

	mu sync.Mutex
	of map[string]*account // by the IDs of keys
}

// account is what one key has written lately.
type account struct {
	maximum int64 // bytes in a day; 0 is no bound
	hours   [day]int64
	hour    int64 // the newest of them, since 1970
	told    int64 // the last in which it is recorded that there was no room
	unsaved int64 // bytes that the registry does not know of
}

const (
	day = 24 // hours
	// unsavedPart of what a key may write in a day may be unknown to the registry, which
	// then costs nothing.
	unsavedPart = 64
)

// meteredJournal is a Journal that says what it has written, and for whom.
type meteredJournal interface {
	Meter(wrote func(account string, bytes int64))
}

func newRecords(ctx context.Context, o *SandboxesOptions) (*records, error) {
	r := &records{Journal: o.Journal, clock: o.Clock, registry: o.Registry, free: o.Private, of: map[string]*account{}}
	m, ok := o.Journal.(meteredJournal)
	if !ok || r.free {
		return r, nil
	}
	known, err := r.registry.Written(ctx, r.now()-day+1)
	if err != nil {
		return nil, err
	}
	for _, w := range known {
		a := r.at(w.Key)
		a.hours[min(w.Hour, a.hour)%day] += w.Bytes // the clock may have been set back
	}
	m.Meter(r.wrote)
	return r, nil
}

// now is the hour, since 1970.
func (r *records) now() int64 { return r.clock.Now().Unix() / int64(time.Hour/time.Second) }

// know says how much a key may write.
func (r *records) know(k *Key, maximum int64) {
	if k.ID == "" || r.free { // no key's, or the only one's
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.at(k.ID).maximum = maximum
}

// at is a key's account, with the hours that are over taken from it. The caller holds mu.
func (r *records) at(key string) *account {
	a := r.of[key]
	if a == nil {
		a = &account{}
		r.of[key] = a
	}
	now := r.now()
	if now-a.hour >= day {
		clear(a.hours[:])
	} else {
		for h := a.hour + 1; h <= now; h++ {
			a.hours[h%day] = 0
		}
	}
	a.hour = max(a.hour, now)
	return a
}

func (r *records) wrote(key string, bytes int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := r.at(key)
	a.hours[a.hour%day] += bytes
	a.unsaved += bytes
}

// save keeps what was counted, of keys of which enough is unsaved.
func (r *records) save(ctx context.Context, enough func(*account) bool) error {
	r.mu.Lock()
	var list []registry.Written
	for key, a := range r.of {
		if a.unsaved == 0 || !enough(a) {
			continue
		}
		r.at(key)
		for h := a.hour - day + 1; h <= a.hour; h++ {
			if n := a.hours[h%day]; n > 0 {
				list = append(list, registry.Written{Key: key, Hour: h, Bytes: n})
			}
		}
		a.unsaved = 0
	}
	r.mu.Unlock()
	if len(list) == 0 {
		return nil
	}
	return r.registry.SetWritten(ctx, list)
}

// saveSome keeps what was counted where it is so much that it must not be lost.
func (r *records) saveSome(ctx context.Context) error {
	return r.save(ctx, func(a *account) bool { return a.maximum > 0 && a.unsaved >= a.maximum/unsavedPart })
}

// saveAll keeps what was counted, at the end.
func (r *records) saveAll(ctx context.Context) error {
	return r.save(ctx, func(*account) bool { return true })
}

// room is an error where a key has written as much as it may. first says that it is
// the first one of this hour.
func (r *records) room(key string) (first bool, err error) {
	if key == "" {
		return false, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	a := r.at(key)
	if a.maximum <= 0 {
		return false, nil
	}
	var all int64
	for _, n := range a.hours {
		all += n
	}
	if all < a.maximum {
		return false, nil
	}
	first = a.told != a.hour
	a.told = a.hour
	return first, &sandbox.Error{Op: "quota", Kind: sandbox.ErrExhausted, Problem: fmt.Sprintf("the key's records of a day take the %s that they may", session.Size(a.maximum)),
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
		if _, err := r.room(list[0].Account); err != nil {
			return err
		}
	}
	return r.Journal.Connections(ctx, list)
}

// admit refuses what there is no room for, and has it recorded now and then that it
// does.
func (r *records) admit(ctx context.Context, in *audit.Intent) error {
	first, err := r.room(in.Account)
	if err == nil {
		err = r.saveSome(ctx)
	}
	if !first {
		return err
	}
	res := &sandbox.Result{Status: sandbox.StatusDenied, Reason: err.Error(), Rule: ruleQuota}
	if jerr := r.Journal.Refuse(ctx, audit.Intent{Actor: in.Actor, Account: in.Account, Kind: in.Kind, Sandbox: in.Sandbox}, audit.Outcome{Status: audit.Refused, Error: err.Error(), Result: res}); jerr != nil {
		return jerr
	}
	return err
}
