// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"testing"

	"github.com/caisson-run/caisson/image"
)

// Sandboxes of a template that the operator names wait with what it starts, for every key that
// may have it; one that asks for more, or means another template, gets its own.
func TestWarmTemplate(t *testing.T) {
	h := newHome(t, func(o *SandboxesOptions) { o.Warm = map[string]WarmRange{"app": {Min: 1}} })
	other := h.newKey(t, "other")
	h.aTemplate(t, "", "app", "1", image.Config{Start: "echo started >>~/started; sleep 1000", Ready: "test -s ~/started"})
	h.share(t, "app", true)
	taken := func(k *Key, c Create, want int64) *Sandbox {
		t.Helper()
		c.Template = "app"
		before := h.WarmPool()
		s, err := h.Create(t.Context(), k, c)
		if err != nil {
			t.Fatal(err)
		}
		if got := h.WarmPool(); got.Taken-before.Taken != want {
			t.Errorf("%+v after %+v", got, before)
		}
		return s
	}
	mine := h.key
	started := func(k *Key, s *Sandbox) {
		t.Helper()
		h.key = k
		if got := h.sh(t, s.ID, "cat ~/started"); got != "started\n" {
			t.Errorf("it was started as %q", got)
		}
		h.key = mine
	}
	started(mine, taken(mine, Create{}, 0)) // none was asked for before
	h.awaitWarm(t, 1)
	started(mine, taken(mine, Create{}, 1))
	h.awaitWarm(t, 1)
	started(other, taken(other, Create{}, 1))
	h.awaitWarm(t, 1)
	started(mine, taken(mine, Create{Env: map[string]string{"A": "b"}}, 0)) // what was started would not have it
	h.aTemplate(t, other.ID, "app", "2", image.Config{Start: "echo other >>~/started; sleep 1000", Ready: "test -s ~/started"})
	h.key = other
	if got := h.sh(t, taken(other, Create{}, 0).ID, "cat ~/started"); got != "other\n" {
		t.Errorf("its own template is %q", got)
	}
	h.key = mine
	h.aTemplate(t, "", "app", "3", image.Config{Start: "echo newer >>~/started; sleep 1000", Ready: "test -s ~/started"})
	if got := h.sh(t, taken(mine, Create{}, 0).ID, "cat ~/started"); got != "newer\n" {
		t.Errorf("the template that was built anew is %q", got)
	}
}

// What waits of a template that a key has built is that key's alone, also where another key has
// one of the same name and of the same image.
func TestWarmTemplateOfAKey(t *testing.T) {
	h := newHome(t, func(o *SandboxesOptions) { o.Warm = map[string]WarmRange{"app": {Min: 1}} })
	keys := map[string]*Key{"mine": h.key, "other": h.newKey(t, "other"), "shared": h.newKey(t, "third")}
	config := image.Config{Start: "echo started >>~/started; sleep 1000", Ready: "test -s ~/started"}
	for _, owner := range []string{keys["mine"].ID, keys["other"].ID, ""} {
		h.aTemplate(t, owner, "app", "1", config)
	}
	create := func(who string, want int64) {
		t.Helper()
		before := h.WarmPool()
		s, err := h.Create(t.Context(), keys[who], Create{Template: "app"})
		if err != nil {
			t.Fatal(err)
		}
		if got := h.WarmPool(); got.Taken-before.Taken != want {
			t.Errorf("%s: %+v after %+v", who, got, before)
		}
		h.key = keys[who]
		if got := h.sh(t, s.ID, "cat ~/started"); got != "started\n" {
			t.Errorf("it was started as %q", got)
		}
	}
	if got := h.WarmPool(); got.Waiting != 0 {
		t.Fatalf("%+v: it is not shared, and none has asked", got)
	}
	create("mine", 0) // it is asked for
	create("mine", 0) // and there is none
	h.awaitWarm(t, 1)
	create("other", 0) // one waits, of another key
	h.share(t, "app", true)
	create("shared", 0)
	h.eachWarm(func(m *warmSandbox) {
		if who := m.Invocation.Call.Account; who != "" && who != keys["mine"].ID {
			t.Errorf("one waits of %q", who)
		}
	})
	create("mine", 1)
}
