// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"slices"

	"github.com/caisson-run/caisson/sandbox"
)

// The words of user, each with less than the next. Where nothing is said it is the
// first.
const (
	asUser   = "user"   // never root
	asSudoer = "sudoer" // the user, and root by name: who asks for it, and sudo where it is
	asRoot   = "root"   // root, unless another user is asked for
)

var users = []string{asUser, asSudoer, asRoot}

// boundUser: a layer below has no more than f. Both words let code be root in the end,
// but with sudoer the caller has to say so.
func (f *File) boundUser(word string) *refusal { return f.boundAs(word, word) }

// boundRoot: a call may ask for root by its name.
func (f *File) boundRoot() *refusal { return f.boundAs(asSudoer, asRoot) }

// boundAs: f has word, at least, which a caller needs to run as that user.
func (f *File) boundAs(word, who string) *refusal {
	if slices.Index(users, word) <= max(slices.Index(users, f.User.V), 0) {
		return nil
	}
	if f.User.Said() {
		return refuse(f.rule(f.User.At), "change the line to user: "+word, "the user is %s, not %s", f.User.V, who)
	}
	return refuse(f.Name, f.add("user: "+word), "the policy does not allow root")
}

// user settles who code runs as.
func (d *decision) user() *refusal {
	if f := d.file; f != nil {
		d.plan.Root, d.plan.Sudoer = f.User.V == asRoot, f.User.V == asSudoer
		d.from("user", f, f.User.At)
	}
	if (d.call.Root || d.call.Sudo) && !d.plan.Root {
		for _, f := range d.Policy.layers(d.call.Operator || d.call.Sudo) {
			if r := f.boundRoot(); r != nil {
				return r
			}
		}
	}
	if d.call.Root && !d.plan.Root {
		d.plan.Root, d.plan.From["user"] = true, "flag"
	}
	return nil
}

// user says who code runs as. Where root is asked for by name, each level's own refuses
// it that has none.
func (e *explainer) user() {
	value, none := asUser, "the sandbox's root would be the host's"
	switch {
	case e.plan.Root:
		value = asRoot
	case e.plan.Sudoer:
		value, none = asUser+", or root where that is asked for by name", "root is refused: "+none
	}
	e.add("user", value, e.from("user"), func(c sandbox.Capabilities) sandbox.Clause {
		switch {
		case c.Root || value == asUser:
			return e.always(c)
		case e.plan.Root:
			return e.can(false, none)
		}
		return sandbox.Clause{Enforcement: sandbox.Enforced, Detail: none}
	})
}
