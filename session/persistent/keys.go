// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"strings"
	"time"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session/registry"
)

// Keys are who may ask for sandboxes. It may be used from many goroutines.
type Keys struct {
	registry *registry.DB
	given    [sha256.Size]byte // of the key that the environment gave
	hasGiven bool
}

// GivenKey is the ID and name of the key that is given in the environment.
const GivenKey = "env"

// shortestKey is how long a key must be that the operator thought of.
const shortestKey = 20

// OpenKeys uses the keys of a registry, and besides them given, which is the
// operator's own (CAISSON_API_KEY); empty is none. It is bound to the policy and
// the profile without a name.
func OpenKeys(r *registry.DB, given string) (*Keys, error) {
	k := &Keys{registry: r}
	if given == "" {
		return k, nil
	}
	if len(given) < shortestKey || strings.ContainsFunc(given, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, &sandbox.Error{Op: "key from the environment", Kind: sandbox.ErrInvalid, Problem: "it is shorter than 20 characters, or has others than letters, digits and punctuation",
			Hint: "make one: caisson keys create"}
	}
	k.given, k.hasGiven = sha256.Sum256([]byte(given)), true
	return k, nil
}

// Authenticate finds the key that a token is; ErrDenied when it is none. One that
// is in the registry is that key, with its policy and its sandboxes, also when the
// environment gave it: a user who exports a key for a client may start a daemon
// there.
func (k *Keys) Authenticate(ctx context.Context, token string) (*Key, error) {
	key, err := k.registry.KeyOf(ctx, token)
	if errors.Is(err, sandbox.ErrDenied) && k.isGiven(token) {
		return &Key{ID: GivenKey, Name: GivenKey}, nil
	}
	return key, err
}

// isGiven says whether token is the operator's own key.
func (k *Keys) isGiven(token string) bool {
	sum := sha256.Sum256([]byte(token))
	return k.hasGiven && subtle.ConstantTimeCompare(sum[:], k.given[:]) == 1
}

// Resembles says whether token could be a key, by its form or as the operator's
// own. Such a token should be given to no one else. It asks no registry.
func (k *Keys) Resembles(token string) bool {
	return strings.HasPrefix(token, registry.TokenPrefix) || k.isGiven(token)
}

// Create makes a key and returns it with its token, which cannot be had again. Valid
// keys have names of their own, or none.
func (k *Keys) Create(ctx context.Context, name, policy, profile string) (*Key, string, error) {
	if len(name) > 64 || strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return nil, "", sandbox.Errorf(sandbox.ErrInvalid, "key", "its name is longer than 64 bytes, or has control characters")
	}
	if name == GivenKey {
		return nil, "", &sandbox.Error{Op: "key " + name, Kind: sandbox.ErrConflict, Problem: "that is the name of the key that the environment gives", Hint: "take another name"}
	}
	key := Key{ID: registry.NewID("k", 10), Name: name, Policy: policy, Profile: profile, Created: time.Now().UTC().Truncate(time.Millisecond)}
	token := registry.NewToken()
	if err := k.registry.AddKey(ctx, key, token); err != nil {
		return nil, "", err
	}
	return &key, token, nil
}

// First makes a key when there is none yet, for a first start; else its token
// is empty.
func (k *Keys) First(ctx context.Context) (*Key, string, error) {
	keys, err := k.registry.Keys(ctx)
	if err != nil || len(keys) > 0 || k.hasGiven {
		return nil, "", err
	}
	return k.Create(ctx, "first", "", "")
}

// List lists all keys, oldest first, also those that were revoked.
func (k *Keys) List(ctx context.Context) ([]*Key, error) { return k.registry.Keys(ctx) }

// Revoke makes a key invalid, by its ID or its name. Its sandboxes live until
// their time is over.
func (k *Keys) Revoke(ctx context.Context, which string) (*Key, error) {
	return k.registry.RevokeKey(ctx, which, time.Now())
}
