// SPDX-License-Identifier: Apache-2.0

package policy

import "slices"

// checkHTTP refuses what a declared request has not: it is made as the policy says,
// and of a caller it has arguments alone. The network is its own host's.
func (d *decision) checkHTTP() *refusal {
	c := d.call
	t, ok := d.Tools().Lookup(c.Tool.Name)
	if !ok || t.HTTP == nil || c.Tool.Server != "" {
		return refuse("built-in: listed tools", "see caisson tools ls", "tool %s is no declared request", quote(shownName(c.Tool.Name)))
	}
	if c.Root || c.Sudo || c.NoNetwork || c.Workspace != nil || len(c.Mounts)+len(c.Env)+len(c.Writable)+len(c.Secrets)+len(c.Collect)+len(c.Toolchains) > 0 || c.Rootfs != "" || c.Image != "" || c.Terminal ||
		!slices.Equal(c.Network, []string{t.HTTP.Endpoint()}) {
		return cannotMean("leave it out", "a declared request has a network to its own host, and nothing else")
	}
	return nil
}

// sayHTTP settles what a declared request's sandbox is like, when the rest of it
// is known: the secrets that it has places for, and not the file's user.
func (d *decision) sayHTTP() *refusal {
	t, ok := d.Tools().Lookup(d.call.Tool.Name)
	if !ok || t.HTTP == nil {
		return nil // it was refused
	}
	h := t.HTTP
	d.plan.Root, d.plan.Sudoer = false, false
	delete(d.plan.From, "user")
	n := d.plan.Network
	for _, name := range h.Secrets() {
		if n == nil || !slices.ContainsFunc(n.Secrets, func(s PlanSecret) bool { return s.Name == name }) {
			return refuse("built-in: secrets", "add it to secrets, with "+h.Endpoint()+" among its hosts", "the secret %s is not one that goes to %s", quote(name), h.Endpoint())
		}
	}
	if n != nil {
		n.Secrets = slices.DeleteFunc(n.Secrets, func(s PlanSecret) bool { return !slices.Contains(h.Secrets(), s.Name) })
	}
	return nil
}
