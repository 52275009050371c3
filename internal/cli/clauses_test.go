// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"slices"
	"testing"

	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
)

// Levels that say the same share a line, and one that cannot run has none: it is
// said once, above.
func TestAnswers(t *testing.T) {
	held := sandbox.Clause{Enforcement: sandbox.Enforced, Detail: "by caisson"}
	levels := map[string]sandbox.Capabilities{"a": {}, "b": {}, "c": {}, "none": {Unusable: "there is no engine"}}
	c := policy.Clause{Levels: map[string]sandbox.Clause{
		"a": held, "b": {Enforcement: policy.Refused, Detail: "no", Remedy: "do this"}, "c": held,
		"none": {Enforcement: policy.Refused, Detail: "there is no engine"},
	}}
	want := []string{"a, c             enforced: by caisson", "b                refused: no (fix: do this)"}
	if got := answers(c, levels); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
