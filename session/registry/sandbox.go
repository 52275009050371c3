// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/caisson-run/caisson/egress/wire"
	"github.com/caisson-run/caisson/internal/store"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
)

// State is how a sandbox stands.
type State string

// The states. Those of a change under way are seen in a registry only after
// the daemon was killed.
const (
	Running  State = "running"
	Pausing  State = "pausing"
	Paused   State = "paused"
	Resuming State = "resuming"
	Ended    State = "ended"
)

// Coldness is how far a sandbox that runs, and that nothing uses, has gone cold by itself;
// empty is not at all. The next request wakes it.
type Coldness string

// How cold it can be.
const (
	Frozen Coldness = "frozen" // it stands still in memory
	OnDisk Coldness = "disk"   // there is no process of it
)

// Action is what happens to a sandbox whose time is over. The zero value ends
// it.
type Action string

// The actions.
const (
	Kill       Action = "kill"
	Pause      Action = "pause"
	PauseFiles Action = "pause-files" // without its memory
)

// Sandbox is the record of a persistent sandbox, which may have ended.
type Sandbox struct {
	// ID is 'i' and 20 of 0-9a-z, Owner the ID of the key that it belongs to.
	ID    string `json:"id"`
	Owner string `json:"owner"`
	// Actor is what records call the owner.
	Actor string `json:"actor,omitempty"`
	// Name is the owner's, for Acquire; empty when it has none.
	Name     string            `json:"name,omitempty"`
	Template string            `json:"template,omitempty"`
	Metadata map[string]string `json:"metadata,omitempty"`
	// Notes are what a frontend keeps with it. They are never shown.
	Notes map[string]string `json:"notes,omitempty"`
	State State             `json:"state"`

	Created time.Time `json:"created"` // when it was first made
	Started time.Time `json:"started"` // when it was made or last resumed
	Ends    time.Time `json:"ends"`    // when its time is over; zero is never
	// Lifetime is how long it was given when it was made or its time last set.
	Lifetime time.Duration `json:"lifetime,omitempty"`
	// Began is when it last began to run, and Ran how long it had run before then:
	// what the wall limit counts. CPU is what it had used when it was last paused.
	Began time.Time     `json:"began,omitzero"`
	Ran   time.Duration `json:"ran,omitempty"`
	CPU   time.Duration `json:"cpu,omitempty"`
	// Idle, when not 0, is how long it may go unused before its time is over.
	Idle      time.Duration `json:"idle,omitempty"`
	OnTimeout Action        `json:"on_timeout"`
	// AutoResume wakes it when something in it is asked for while it is paused.
	AutoResume bool `json:"auto_resume,omitempty"`

	Isolation string          `json:"isolation"`
	Limits    sandbox.Limits  `json:"limits"`
	Network   []string        `json:"network,omitempty"` // the entries that let it reach something
	Denied    []string        `json:"denied,omitempty"`  // those that are taken away from them
	Posture   sandbox.Posture `json:"posture"`
	// Resumed counts how often it was resumed.
	Resumed int `json:"resumed,omitempty"`

	// Wishes are what the owner of this host asked for besides, as no key may: its files,
	// say. They are not kept: such a sandbox ends with its process.
	Wishes *policy.Call `json:"-"`

	// Used is when an action in it last began or ended, as the process knows that
	// runs it; it is not kept.
	Used time.Time `json:"-"`

	// EndedAt and Reason say when and why it ended.
	EndedAt time.Time `json:"ended_at,omitzero"`
	Reason  string    `json:"reason,omitempty"`

	// Env are the variables of every program in it. Frontends never show them.
	Env map[string]string `json:"env,omitempty"`
	// Image is the container image that was asked for; empty for the default
	// root.
	Image string `json:"image,omitempty"`
	// ImageDigest is what Image meant when the sandbox began: what is kept of it goes on
	// with that, whatever the name means now. Empty without one, and from before it was
	// written down.
	ImageDigest string `json:"image_digest,omitempty"`
	// OwnImage says that Image is a template which the owner has built.
	OwnImage bool `json:"own_image,omitempty"`
	// Asked are the limits, and Allow, Deny and NoNetwork the network, that were
	// asked for when it was made, as they are when it is resumed.
	Asked     sandbox.Limits `json:"asked"`
	Allow     []string       `json:"allow,omitempty"`
	Deny      []string       `json:"deny,omitempty"`
	NoNetwork bool           `json:"no_network,omitempty"`
	// Headers are those that its requests get, as they were asked for when it was made. Frontends
	// never show them. One without a value is not set, and has its place in the environment.
	Headers []wire.Header `json:"headers,omitempty"`
	// Writable are the directories that it was made with besides those of its
	// policy.
	Writable []string `json:"writable,omitempty"`
	// Wired says that it was made with a network, and Reach what that was changed to
	// since; nil is as it was made.
	Wired bool   `json:"wired,omitempty"`
	Reach *Reach `json:"reach,omitempty"`
	// Placeholders are those of its secrets, by their names: its programs have them
	// as long as it lives, and those of its copies. None of them is a secret.
	Placeholders map[string]string `json:"placeholders,omitempty"`
	// Names are what it calls itself; zero for one of an earlier version, which has the names
	// that all had.
	Names Names `json:"names,omitzero"`
	// Sudo says that its programs may become its own root.
	Sudo bool `json:"sudo,omitempty"`
	// Waits says that it ran when caisson was stopped, and goes on with the next
	// one, its time running meanwhile.
	Waits bool `json:"waits,omitempty"`
	// Life is what the next caisson needs to take it over while it runs; nil when it
	// dies with this one.
	Life *Life `json:"life,omitempty"`
	// Workspace is its copy-on-write workspace; nil without.
	Workspace *Workspace `json:"workspace,omitempty"`
	// Kept is the directory that holds its memory and files while it is paused, or has
	// gone cold, relative to the state directory. Seal is what is known of it.
	Kept string `json:"kept,omitempty"`
	Seal *Seal  `json:"seal,omitempty"`
	// Rebooted says why it last began anew with its files alone, when its memory did not fit.
	Rebooted string `json:"rebooted,omitempty"`
	// Unwarmed says why the warmup of its template was not done in it when it was made; empty
	// where it was, or there is none.
	Unwarmed string `json:"unwarmed,omitempty"`
	// Cold says how far it has gone cold, as the process knows that has it: Frozen or OnDisk.
	Cold Coldness `json:"-"`
	// Boots says that Kept has its files alone: it begins anew when it is resumed,
	// which a caller has to ask for.
	Boots bool `json:"boots,omitempty"`
}

// Names are what one sandbox calls itself, and no other does. They tell nothing of the host,
// nor of what the sandbox is called outside.
type Names struct {
	Host    string `json:"host"`    // "sandbox-" and 12 of 0-9a-z
	Machine string `json:"machine"` // 32 of 0-9a-f, as machine-id(5) has it
}

// NewNames are drawn at random.
func NewNames() Names {
	id := make([]byte, 16)
	rand.Read(id)
	id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80 // version 4 of RFC 9562, as systemd's are
	return Names{NewID("sandbox-", 12), hex.EncodeToString(id)}
}

// Life is what a sandbox that may outlive its caisson was made of, as far as that
// cannot be decided anew.
type Life struct {
	// Run names its run directory.
	Run string `json:"run"`
	// Environment is a digest of what the policy had it made of.
	Environment string `json:"world"` // the name of earlier versions
	// User, Dir and Search are its programs' user, directory and PATH.
	User   sandbox.User `json:"user"`
	Dir    string       `json:"dir"`
	Search []string     `json:"search,omitempty"`
	// Env are the variables of its image, and Trust those that say whom to trust.
	Env   []string          `json:"env,omitempty"`
	Trust map[string]string `json:"trust,omitempty"`
}

// Reach is a part of what a key's policy lets a sandbox reach: Allow, or all of it
// where that is empty, without Deny; or nothing.
type Reach struct {
	Allow []string `json:"allow,omitempty"`
	Deny  []string `json:"deny,omitempty"`
	None  bool     `json:"none,omitempty"`
	// Headers are those that requests get.
	Headers []wire.Header `json:"headers,omitempty"`
}

// HideHeaders takes the values out of the headers that s was made with and, unless it is
// nil, of what its network was changed to. Their hosts stay, which its environment was made for.
func (s *Sandbox) HideHeaders() {
	hidden := func(list []wire.Header) (out []wire.Header) {
		for _, h := range list {
			out = append(out, wire.Header{Host: h.Host, Name: h.Name})
		}
		return out
	}
	s.Headers = hidden(s.Headers)
	if r := s.Reach; r != nil {
		s.Reach = &Reach{Allow: r.Allow, Deny: r.Deny, None: r.None, Headers: hidden(r.Headers)}
	}
}

// RanUntil is how long a sandbox that runs has run by now, pauses not counted.
func (s *Sandbox) RanUntil(now time.Time) time.Duration { return s.Ran + now.Sub(s.Began) }

// Clone is a copy that shares nothing.
func (s *Sandbox) Clone() *Sandbox {
	c := *s
	c.Metadata, c.Notes, c.Env, c.Network = maps.Clone(s.Metadata), maps.Clone(s.Notes), maps.Clone(s.Env), slices.Clone(s.Network)
	c.Denied = slices.Clone(s.Denied)
	c.Writable, c.Placeholders = slices.Clone(s.Writable), maps.Clone(s.Placeholders)
	c.Allow, c.Deny, c.Asked.Explicit = slices.Clone(s.Allow), slices.Clone(s.Deny), maps.Clone(s.Asked.Explicit)
	c.Headers = slices.Clone(s.Headers)
	if r := s.Reach; r != nil {
		c.Reach = &Reach{Allow: slices.Clone(r.Allow), Deny: slices.Clone(r.Deny), None: r.None, Headers: slices.Clone(r.Headers)}
	}
	if l := s.Life; l != nil {
		life := *l
		life.Search, life.Env, life.Trust = slices.Clone(l.Search), slices.Clone(l.Env), maps.Clone(l.Trust)
		c.Life = &life
	}
	c.Workspace = s.Workspace.clone()
	if s.Seal != nil {
		seal := *s.Seal
		c.Seal = &seal
	}
	c.Limits.Explicit, c.Posture.Limits = maps.Clone(s.Limits.Explicit), maps.Clone(s.Posture.Limits)
	return &c
}

// ended is what is kept of a sandbox that has ended, for who asks for it: there may be
// a million of them a day.
type ended struct {
	ID      string    `json:"id"`
	Owner   string    `json:"owner"`
	State   State     `json:"state"`
	EndedAt time.Time `json:"ended_at"`
	Reason  string    `json:"reason,omitempty"`
}

// Put writes a sandbox, whether it is new or not. Of one that has ended only its
// owner, and when and why that was, are kept.
func (r *DB) Put(ctx context.Context, s *Sandbox) error {
	var what any = s
	if s.State == Ended {
		what = ended{s.ID, s.Owner, s.State, s.EndedAt, s.Reason}
	}
	body, err := json.Marshal(what)
	if err != nil {
		return err
	}
	var at any
	if s.State == Ended {
		at = s.EndedAt.UnixMilli()
	}
	put := func() error {
		_, err := r.db.ExecContext(ctx, `INSERT INTO sandboxes (id, owner, state, ended, body) VALUES (?, ?, ?, ?, ?)
			ON CONFLICT (id) DO UPDATE SET state = excluded.state, ended = excluded.ended, body = excluded.body`,
			s.ID, s.Owner, string(s.State), at, body)
		return err
	}
	if err = put(); s.State == Ended && r.reserve != nil && store.Full(err) {
		err = r.reserve.Spend(put)
	}
	return r.db.Failed("write", err)
}

// Get reads one sandbox; ErrNotFound when there is none.
func (r *DB) Get(ctx context.Context, id string) (*Sandbox, error) {
	var body []byte
	err := r.db.QueryRowContext(ctx, "SELECT body FROM sandboxes WHERE id = ?", id).Scan(&body)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, sandbox.Errorf(sandbox.ErrNotFound, "sandbox "+id, "there is none")
	}
	if err != nil {
		return nil, r.db.Failed("read", err)
	}
	return decode(body)
}

// Left reads the sandboxes that have not ended.
func (r *DB) Left(ctx context.Context) ([]*Sandbox, error) {
	rows, err := r.db.QueryContext(ctx, "SELECT body FROM sandboxes WHERE ended IS NULL ORDER BY id")
	if err != nil {
		return nil, r.db.Failed("read", err)
	}
	defer rows.Close()
	var out []*Sandbox
	for rows.Next() {
		var body []byte
		if err := rows.Scan(&body); err != nil {
			return nil, r.db.Failed("read", err)
		}
		s, err := decode(body)
		if err != nil {
			return nil, r.db.Failed("read", err)
		}
		out = append(out, s)
	}
	return out, r.db.Failed("read", rows.Err())
}

// forgetAtOnce is how many rows one transaction drops: others want the registry, too.
const forgetAtOnce = 500

// Forget drops what is kept of sandboxes that ended before t, and of all but the last
// most.
func (r *DB) Forget(ctx context.Context, t time.Time, maximum int) error {
	for _, old := range []struct {
		which string
		args  []any
	}{
		{"ended < ? LIMIT ?", []any{t.UnixMilli(), forgetAtOnce}},
		{"ended IS NOT NULL ORDER BY ended DESC LIMIT ? OFFSET ?", []any{forgetAtOnce, maximum}},
	} {
		for n := int64(1); n > 0; {
			res, err := r.db.ExecContext(ctx, "DELETE FROM sandboxes WHERE id IN (SELECT id FROM sandboxes WHERE "+old.which+")", old.args...)
			if err == nil {
				n, err = res.RowsAffected()
			}
			if err != nil {
				return r.db.Failed("write", err)
			}
		}
	}
	return nil
}

func decode(body []byte) (*Sandbox, error) {
	s := &Sandbox{}
	return s, json.Unmarshal(body, s)
}
