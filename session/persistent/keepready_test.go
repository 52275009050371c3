// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"errors"
	"testing"
	"time"

	"github.com/caisson-run/caisson/image"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
)

// What is kept ready for a key is that key's alone: no other gets it, not under the same policy
// nor under another one that comes to the same, of what the host, the operator or the key has
// made. What waits counts for no quota; what is given away is a sandbox like any other.
func TestKeptReadyForAKey(t *testing.T) {
	limits := sandbox.Limits{Memory: 64 << 20, Explicit: map[sandbox.LimitName]bool{sandbox.LimitMemory: true}}
	started := image.Config{Start: "echo started >>~/started; sleep 1000", Ready: "test -s ~/started"}
	for name, like := range map[string]Create{
		"limits":                            {Limits: limits},
		"a template of the operator's":      {Template: "theirs"},
		"a template of its own":             {Template: "mine"},
		"one of its own and the operator's": {Template: "both"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHome(t, func(o *SandboxesOptions) {
				file, err := policy.Parse("/same.yaml", []byte("version: 1\n"))
				if err != nil {
					t.Fatal(err)
				}
				file.Dir = "/"
				o.Policies = map[string]*policy.File{"same": file}
				p := DefaultProfile()
				p.Quota.Sandboxes = 1
				o.Profiles = map[string]Profile{"": p}
			})
			same, _, err := h.keys.Create(t.Context(), "same", "same", "")
			if err != nil {
				t.Fatal(err)
			}
			other := h.newKey(t, "other")
			for _, who := range []string{"", h.key.ID, other.ID, same.ID} {
				if who == "" {
					h.aTemplate(t, who, "theirs", "1", started)
					h.share(t, "theirs", true)
				} else {
					h.aTemplate(t, who, "mine", "2", started)
				}
				if who == "" || who == h.key.ID {
					h.aTemplate(t, who, "both", "3", started)
				}
			}
			h.share(t, "both", true)
			if err := h.KeepReady(t.Context(), h.key, like, 2); err != nil {
				t.Fatal(err)
			}
			h.awaitWarm(t, 2)
			h.clock.move(time.Minute) // which none of them has used
			for _, c := range []struct {
				who  string
				key  *Key
				want int64
			}{{"another key", other, 0}, {"a key of another policy", same, 0}, {"the key", h.key, 1}} {
				before := h.WarmPool().Taken
				s, err := h.Create(t.Context(), c.key, like)
				if err != nil {
					t.Fatal(c.who, err)
				}
				if got := h.WarmPool().Taken - before; got != c.want || s.Owner != c.key.ID {
					t.Errorf("%s has taken %d, want %d; it is %s's", c.who, got, c.want, s.Owner)
				}
				if s.Created != h.clock.Now() || s.Ends != s.Created.Add(s.Lifetime) {
					t.Errorf("%s: made at %v, ends at %v", c.who, s.Created, s.Ends)
				}
			}
			if _, err := h.Create(t.Context(), h.key, like); !errors.Is(err, sandbox.ErrExhausted) {
				t.Errorf("what waits is beyond the quota: %v", err)
			}
		})
	}
}
