// SPDX-License-Identifier: Apache-2.0

package rule

import (
	"fmt"
	"net/netip"
	"strings"
)

// publicPrefix begins an entry that opens addresses as the internet does: "public:8.8.8.0/24:53".
// A range that is written without it opens this host's own addresses in it, too.
const publicPrefix = "public:"

// isPublic takes the prefix off, where it is one: a port after it is one of a host of
// that name.
func isPublic(text string) (rest string, ok bool) {
	rest, ok = strings.CutPrefix(text, publicPrefix)
	if ok {
		_, err := parsePorts(rest)
		ok = err != nil
	}
	return rest, ok
}

// public reads the rest of such an entry. It names public addresses and no other: who
// writes a range that holds more means more than it would open.
func public(text, rest, from string) (Rule, error) {
	r, err := parse(rest, from, webPorts)
	switch {
	case err != nil:
		return Rule{}, err
	case !r.net.IsValid():
		return Rule{}, fmt.Errorf("after %s comes an address, or a range of them", publicPrefix)
	case !wholly(r.net):
		return Rule{}, fmt.Errorf("not every address of %s is public", r.net)
	}
	r.Text, r.public = text, true
	return r, nil
}

// wholly says whether every address of p is public.
func wholly(p netip.Prefix) bool {
	for _, b := range blocks() {
		if b.prefix.Overlaps(p) {
			return false
		}
	}
	a := p.Addr()
	return a.Is4() || !a.Is4In6() && p.Bits() >= global.Bits() && global.Contains(a)
}

// PublicPart is the entry for what an address or a range opens without this host's own
// addresses; empty where text is anything else, or not public from end to end.
func PublicPart(text string) string {
	if _, ok := isPublic(text); ok {
		return ""
	}
	narrow := publicPrefix + text
	if rest, ok := isPublic(narrow); ok {
		if _, err := public(narrow, rest, ""); err == nil {
			return narrow
		}
	}
	return ""
}
