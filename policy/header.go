// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"slices"
	"strings"

	"github.com/caisson-run/caisson/egress/rule"
	"github.com/caisson-run/caisson/egress/wire"
	"github.com/caisson-run/caisson/sandbox"
)

// Bounds of the headers that a call asks for.
const (
	maxHeaders     = 100
	maxHeaderBytes = 32 << 10 // of names and values; servers take heads of some 64 KiB
)

// CheckHeaders refuses headers that no request can get: too many, no host, no name, no
// value, or one that says how a request is read. One without a value is not set, and passes.
// Errors are ErrInvalid with a hint, and have nothing of a value.
func CheckHeaders(list []wire.Header) error {
	size := 0
	for _, h := range list {
		if _, err := rule.ParseHeaderHost(h.Host); err != nil {
			return invalid("write api.example.com, or *.example.com", "requests to %s get no headers: %v", quote(h.Host), err)
		}
		value := string(h.Value)
		if value == "" {
			value = "-"
		}
		if err := rule.CheckHeader(h.Name, value); err != nil {
			return invalid("write X-Name, and a value of printable ASCII", "requests to %s do not get the header %s: %v", quote(h.Host), quote(sandbox.Clip(h.Name, 64)), err)
		}
		size += len(h.Name) + len(value)
	}
	if len(list) > maxHeaders || size > maxHeaderBytes {
		return invalid("ask for fewer", "there are more than %d headers, or they have more than %d bytes together", maxHeaders, maxHeaderBytes)
	}
	return nil
}

// headers are those that the call asks for, in requests that the network lets through all
// the same. They open nothing: a host that is not allowed is not reached.
func (d *decision) headers() *refusal {
	list := d.call.Headers
	if len(list) == 0 || d.call.NoNetwork { // without a network there are no requests
		return nil
	}
	if err := CheckHeaders(list); err != nil {
		return refuseInvalid("headers of requests", err)
	}
	if d.plan.Network == nil {
		return refuse("built-in: headers of requests", "leave them out, or ask the operator for a policy with a network", "headers of requests are asked for, and there is no network")
	}
	d.plan.Network.Headers = slices.Clone(list)
	return nil
}

// headerNames are the headers that requests get, by host, without their values.
func (n *PlanNetwork) headerNames() (lines []string) {
	for _, h := range n.Headers {
		if h.Value != "" {
			lines = append(lines, h.Name+" to "+strings.ToLower(h.Host))
		}
	}
	slices.Sort(lines)
	return slices.Compact(lines)
}
