// SPDX-License-Identifier: Apache-2.0

package network

import (
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/caisson-run/caisson/egress/rule"
	"github.com/caisson-run/caisson/egress/wire"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
)

// Refusal is an attempt of the program's to reach something, for people: what
// was refused, and what would allow it.
type Refusal struct {
	sandbox.Connection
	Hint string // empty when nothing would
	// Failed says that it is allowed, and came to nothing.
	Failed bool
}

// String is one sentence. Its names are of the sandbox's making, and plain.
func (f Refusal) String() string {
	if f.Failed {
		return fmt.Sprintf("no connection to %s: %s", target(f.Connection), f.Reason)
	}
	return fmt.Sprintf("refused %s: %s", target(f.Connection), f.Reason)
}

// target is what a connection was to.
func target(c sandbox.Connection) string {
	host := c.Host
	if host == "" {
		host = c.Address
	}
	if c.Port == 0 {
		return host
	}
	return net.JoinHostPort(host, strconv.Itoa(c.Port))
}

// hint is the line that would allow what was refused, where one would: an
// address that a name led to is opened by an entry for the address. Of what an entry
// refuses it is where that stands.
func hint(rec *wire.Record, policyName string) string {
	if !rec.Open {
		if rec.Rule != "" && RuleFrom(rec.From) != "" {
			return rec.Rule + " in " + rec.From
		}
		return ""
	}
	c := connection(*rec)
	if rec.Method != "" {
		return "add to the policy: network: {allow: [" + rec.Entry() + "]}"
	}
	if c.Address != "" {
		c.Host = ""
	}
	entry := target(c)
	if n, err := rule.ParseName(c.Host); err == nil {
		if preset := rule.PresetOf(n, uint16(c.Port)); preset != "" {
			entry = preset
		}
	}
	if c.Host == rule.ThisHost && c.Port == 0 {
		entry += ":PORT"
	}
	if policyName != "" {
		return policy.Add(policyName, "network: {allow: ["+strconv.Quote(entry)+"]}")
	}
	return "allow it with --allow " + entry
}

// RuleFrom is the line of a policy file that an entry comes from; empty when it
// was a flag or is a default.
func RuleFrom(from string) string {
	if !strings.HasPrefix(from, "login ") && from != "flag" && from != "default" && from != "--allow" && from != "--secret" && from != "--upstream-ca" {
		return from
	}
	return ""
}
