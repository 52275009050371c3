// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"cmp"
	"fmt"
	"math"
	"time"

	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
	"github.com/caisson-run/caisson/session/registry"
)

// Profile is how much a key may have. A policy file may allow less or more of
// the limits of one sandbox; the quota holds all the same.
type Profile struct {
	// Limits are those of each sandbox where its policy says nothing.
	Limits sandbox.Limits
	// Timeout is how long a sandbox lives when nobody says; MaxTimeout is the
	// longest that may be asked for. 0 is 5 minutes and 24 hours.
	Timeout, MaxTimeout time.Duration
	// Quota bounds all sandboxes of the key together.
	Quota Quota
}

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
	// Records is how many bytes the key's calls may add to the audit log in a day. It
	// is use that counts here.
	Records int64
}

// LivingLimits are the limits of a sandbox that lives on, where nobody says
// anything: no wall clock, since its timeout bounds it, and no output limit,
// which is a program's; 1 CPU, 512 MiB, 512 processes, 8192 files open in each,
// 1 GiB of disk and 256 MiB of /tmp. A wall limit that is written bounds the time
// that it runs in all its life, beside the timeout.
func LivingLimits() sandbox.Limits {
	const mib = 1 << 20
	return sandbox.Limits{
		CPUs: 1, Memory: 512 * mib, Processes: 512, OpenFiles: 8192, Disk: 1024 * mib, Inodes: 512 * 1024, Tmp: 256 * mib,
	}
}

// DefaultProfile is what a key may have that is bound to none.
func DefaultProfile() Profile {
	return Profile{
		Limits: LivingLimits(), Timeout: 5 * time.Minute, MaxTimeout: 24 * time.Hour,
		Quota: Quota{Sandboxes: 100, Paused: 100, Snapshots: 100, Records: 10 << 30},
	}
}

func (p Profile) withDefaults() Profile {
	d := DefaultProfile()
	if p.Timeout <= 0 {
		p.Timeout = d.Timeout
	}
	if p.MaxTimeout <= 0 {
		p.MaxTimeout = d.MaxTimeout
	}
	return p
}

// Longest, as the time of a sandbox, is the longest that its key may have.
const Longest = time.Duration(math.MaxInt64)

// lifetime is how long a sandbox gets that asks for want.
func (p Profile) lifetime(want time.Duration) (time.Duration, error) {
	switch {
	case want < 0:
		return 0, sandbox.Errorf(sandbox.ErrInvalid, "timeout", "it is negative")
	case want == 0:
		return min(p.Timeout, p.MaxTimeout), nil
	case want == Longest:
		return p.MaxTimeout, nil
	case want > p.MaxTimeout:
		return 0, &sandbox.Error{Op: "timeout", Kind: sandbox.ErrInvalid, Problem: fmt.Sprintf("%s is more than the %s that this key may have", want, p.MaxTimeout),
			Hint: "ask for less, and extend it while it runs"}
	}
	return want, nil
}

// grantName is what a key is bound to.
type grantName struct{ policy, profile string }

// grant is what it stands for.
type grant struct {
	session *session.Session
	options session.Options // of session
	policy  *policy.Policy
	profile Profile
	once    *grant // for sandboxes of one call; nil until the first, b.mu guards it
}

// grant finds what a key may have.
func (b *Sandboxes) grant(k *Key) (*grant, error) {
	name := grantName{k.Policy, k.Profile}
	b.mu.Lock()
	defer b.mu.Unlock()
	if g := b.grants[name]; g != nil {
		b.writes.know(k, g.profile.Quota.Records)
		return g, nil
	}
	unknown := func(what, name string) error {
		return &sandbox.Error{Op: "key " + cmp.Or(k.Name, k.ID), Kind: sandbox.ErrDenied, Problem: fmt.Sprintf("its %s %q is not known to this caisson", what, name),
			Hint: "start caisson with it, or make another key", Rule: "built-in: keys"}
	}
	file, ok := b.o.Policies[k.Policy]
	if !ok && k.Policy != "" {
		return nil, unknown("policy", k.Policy)
	}
	profile, ok := b.o.Profiles[k.Profile]
	if !ok {
		if k.Profile != "" {
			return nil, unknown("profile", k.Profile)
		}
		profile = DefaultProfile()
	}
	p, err := policy.New(policy.Options{System: b.o.System, File: file, Defaults: profile.Limits})
	if err != nil {
		return nil, err
	}
	policyName := ""
	if file != nil {
		policyName = file.Name
	}
	var read []sandbox.HostFile // another key's policy, too, is nothing that code may write
	for _, f := range b.o.Policies {
		if f != file {
			read = append(read, f.Reads()...)
		}
	}
	o := session.Options{Drivers: b.o.Drivers, Policy: p, PolicyName: policyName, Read: append(read, b.o.Read...), Journal: b.o.Journal, State: b.o.State, Rates: b.o.Registry, Boot: b.o.Boot, Approvals: b.o.Approvals, Outlive: b.o.Grace > 0, EndLimit: b.o.EndLimit, Swept: true}
	s, err := session.New(o)
	if err != nil {
		return nil, err
	}
	g := &grant{session: s, options: o, policy: p, profile: profile.withDefaults()}
	b.grants[name] = g
	b.writes.know(k, g.profile.Quota.Records)
	return g, nil
}

// fits says whether the quota of its owner has room for l in state with limits,
// in one step with the count. The caller holds b.mu.
func (l *managed) fits(q Quota, limits sandbox.Limits, state registry.State) error {
	b := l.b
	running, paused, cpus, memory, disk := 0, 0, limits.CPUs, limits.Memory, limits.Disk+limits.Tmp+b.written[l.owner]
	for _, other := range b.all {
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
		disk += have.limits.Disk + have.limits.Tmp
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

const ruleQuota = "built-in: quota"
