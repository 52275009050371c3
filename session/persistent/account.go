// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"errors"
	"slices"

	"github.com/caisson-run/caisson/sandbox"
)

// ErrNobody is the cause of an error about a user whom a sandbox does not have.
var ErrNobody = errors.New("there is no such user")

// Account is whom a name means that a request gives: the sandbox's own user, where
// it is empty, too; its root; or, where its own is root, the ordinary user. It is
// known before anything is decided, and does not change. An account file inside
// could name another user, or another home, by the time the program starts.
//
// It does not say that the account may be had; as does.
func (in *Inside) Account(name string) (sandbox.User, error) {
	known := []sandbox.User{in.User}
	if in.User.UID != 0 {
		// An image's own user may be called root, and is not.
		known = []sandbox.User{sandbox.RootUser(), in.User}
	} else if ordinary := sandbox.DefaultUser(); in.User.Name != ordinary.Name {
		known = append(known, ordinary)
	}
	if name == "" {
		return in.User, nil
	}
	if i := slices.IndexFunc(known, func(u sandbox.User) bool { return u.Name == name }); i >= 0 {
		return known[i], nil
	}
	return sandbox.User{}, &sandbox.Error{Op: "user " + sandbox.Quoted(sandbox.Clip(name, maxName)), Kind: sandbox.ErrInvalid, Cause: ErrNobody,
		Problem: "the sandbox has none that can be asked for", Hint: "programs and files here are those of " + known[0].Name + " and " + known[1].Name}
}

// as is the sandbox for a user of it, whom a request names: what is asked of it has the
// rights of that user. Dir and Env stay the sandbox's. The error is ErrInvalid, with
// [ErrNobody], for whom it does not have, and ErrUnsupported for root where programs cannot
// be root.
func (in *Inside) as(name string) (*Inside, error) {
	u, err := in.Account(name)
	if err != nil {
		return nil, err
	}
	return in.become(u)
}

func (in *Inside) become(u sandbox.User) (*Inside, error) {
	switch {
	case u == in.User:
		return in, nil
	case u.UID == 0 && !in.sudo:
		return nil, sandbox.Errorf(sandbox.ErrUnsupported, "user root", "programs of this sandbox run as its user")
	}
	other := *in
	other.User, other.agent = u, in.agent.AsUser(u)
	return &other, nil
}
