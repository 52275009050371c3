// SPDX-License-Identifier: Apache-2.0

package e2b

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/caisson-run/caisson/egress/wire"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
)

// rules are E2B's: by domain, what requests to it get, in their order. Of a domain's rules
// the last that says something of a header counts.
type rules map[string][]struct {
	Transform *struct {
		Headers map[string]string `json:"headers"`
	} `json:"transform"`
}

// headers reads network.rules. What it has besides headers is refused by name, and nothing
// here repeats a value.
func headers(raw json.RawMessage) ([]wire.Header, error) {
	bad := func(s string) ([]wire.Header, error) {
		return nil, &apiError{http.StatusBadRequest, "network.rules: " + s}
	}
	if len(raw) == 0 || asksNothing(raw) {
		return nil, nil
	}
	var all rules
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(&all); err != nil {
		return bad(`it is {"domain": [{"transform": {"headers": {"Name": "value"}}}]} and nothing else`)
	}
	var out []wire.Header
	for _, domain := range slices.Sorted(maps.Keys(all)) {
		have := map[string]string{}
		for _, r := range all[domain] {
			if r.Transform == nil {
				continue
			}
			said := map[string]bool{}
			for name, value := range r.Transform.Headers {
				key := http.CanonicalHeaderKey(name)
				if said[key] {
					return bad("one rule has the same header twice, in another case")
				}
				switch {
				case value == "":
					return bad("a header has no value; a rule sets headers and removes none")
				case strings.Contains(value, "${e2b."):
					return bad("a header has a token of iam, which is not carried")
				}
				said[key], have[key] = true, value
			}
		}
		for _, name := range slices.Sorted(maps.Keys(have)) {
			out = append(out, wire.Header{Host: strings.ToLower(domain), Name: name, Value: wire.Value(have[name])})
		}
	}
	if err := policy.CheckHeaders(out); err != nil {
		return bad(err.Error() + "; " + sandbox.Hint(err))
	}
	return out, nil
}
