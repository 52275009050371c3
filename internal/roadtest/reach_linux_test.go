// SPDX-License-Identifier: Apache-2.0

package roadtest

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session/persistent"
)

// What a living sandbox may reach is changed: connections that are no longer
// allowed are closed, others stay, nothing goes beyond the key's policy, and a
// pause, a snapshot or a fork does not bring back what was taken away.
func TestSetNetwork(t *testing.T) {
	onInternet(t, func(t *testing.T) {
		plugIn(t)
		file, err := policy.Parse("key.yaml", []byte("version: 1\nnetwork: {allow: [good.example.com, other.example.com], budget: {connections: 100}}\n"))
		if err != nil {
			t.Fatal(err)
		}
		l := openLiving(t, filepath.Join(t.TempDir(), "state"), "gvisor", func(o *persistent.SandboxesOptions) { o.Policies[""] = file })
		s, err := l.Create(t.Context(), l.key, persistent.Create{Lifetime: persistent.Lifetime{Timeout: time.Minute}})
		if err != nil {
			t.Fatal(err)
		}
		reaches := func(id, host string) bool {
			return strings.Contains(l.sh(t, id, "curl -sS -m 20 http://"+host+"/ || true"), "good host")
		}
		set := func(w persistent.NetworkWish) {
			t.Helper()
			got, err := l.Handle(l.key, s.ID).SetNetwork(t.Context(), w)
			if err != nil {
				t.Fatal(err)
			}
			if want := 2 - len(w.Deny); !w.None && len(w.Allow) == 0 && len(got.Network) != 2 || len(w.Allow) > 0 && len(got.Network) != len(w.Allow) || w.None && len(got.Network) != 0 {
				t.Errorf("it says that it may reach %q, want %d", got.Network, want)
			}
		}
		if !reaches(s.ID, "good.example.com") || !reaches(s.ID, "other.example.com") {
			t.Fatal("nothing is reached")
		}
		// Two connections stand and wait; one stays allowed.
		l.sh(t, s.ID, standing)
		set(persistent.NetworkWish{Allow: []string{"good.example.com"}})
		if got := l.sh(t, s.ID, `while ! test -s /tmp/end.other.example.com; do sleep 0.05; done; cat /tmp/end.other.example.com; test ! -e /tmp/end.good.example.com && echo " and one open"`); got != "reset and one open" {
			t.Errorf("the connections: %s", got)
		}
		if !reaches(s.ID, "good.example.com") || reaches(s.ID, "other.example.com") {
			t.Error("it does not reach what it may alone")
		}
		// Not beyond the policy, and what is refused changes nothing.
		for _, w := range []persistent.NetworkWish{{Allow: []string{"evil.example.com"}}, {Allow: []string{"internet"}}, {Allow: []string{"good.example.com:*"}}} {
			if _, err := l.Handle(l.key, s.ID).SetNetwork(t.Context(), w); !errors.Is(err, sandbox.ErrDenied) {
				t.Errorf("%q: %v", w.Allow, err)
			}
		}
		if !reaches(s.ID, "good.example.com") || reaches(s.ID, "evil.example.com") || reaches(s.ID, "other.example.com") {
			t.Error("what was refused is in force")
		}
		if _, err := l.Handle(&persistent.Key{ID: "another"}, s.ID).SetNetwork(t.Context(), persistent.NetworkWish{}); !errors.Is(err, sandbox.ErrNotFound) {
			t.Errorf("another key: %v", err)
		}
		forked, err := l.Handle(l.key, s.ID).Fork(t.Context(), 1, time.Minute)
		if err != nil || forked[0].Err != nil {
			t.Fatal(err, forked[0].Err)
		}
		if id := forked[0].Sandbox.ID; !reaches(id, "good.example.com") || reaches(id, "other.example.com") {
			t.Error("a fork reaches something else")
		}
		// Nothing at all, and through a pause, in which it is given back in part.
		set(persistent.NetworkWish{None: true})
		pause := func() {
			t.Helper()
			if _, err := l.Handle(l.key, s.ID).Pause(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		resume := func() {
			t.Helper()
			if _, err := l.Handle(l.key, s.ID).Resume(t.Context(), 0); err != nil {
				t.Fatal(err)
			}
		}
		pause()
		resume()
		if reaches(s.ID, "good.example.com") || reaches(s.ID, "other.example.com") {
			t.Error("a pause brings the network back")
		}
		pause()
		set(persistent.NetworkWish{Deny: []string{"good.example.com"}})
		resume()
		if reaches(s.ID, "good.example.com") || !reaches(s.ID, "other.example.com") {
			t.Error("what was changed in a pause is not in force")
		}
		set(persistent.NetworkWish{})
		if !reaches(s.ID, "good.example.com") {
			t.Error("what the policy grants does not come back")
		}
		none, err := l.Create(t.Context(), l.key, persistent.Create{Lifetime: persistent.Lifetime{Timeout: time.Minute}, Network: &persistent.NetworkWish{None: true}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.Handle(l.key, none.ID).SetNetwork(t.Context(), persistent.NetworkWish{}); !errors.Is(err, sandbox.ErrUnsupported) {
			t.Errorf("a sandbox without a wire: %v", err)
		}
	})
}

// A secret that is reached only later: programs have its placeholder from the start,
// those that ran before, too, and keep it through a pause.
func TestSetNetworkSecret(t *testing.T) {
	onInternet(t, func(t *testing.T) {
		t.Setenv("API_KEY", apiKey)
		with := func(o *persistent.SandboxesOptions, text string) {
			file, err := policy.Parse("key.yaml", []byte("version: 1\nnetwork: {allow: [good.example.com, other.example.com], upstream_ca: "+plugIn(t)+"}\n"+text))
			if err != nil {
				t.Fatal(err)
			}
			o.Policies[""] = file
		}
		const secret = "secrets: [{name: KEY, from: \"env:API_KEY\", hosts: [other.example.com]}]\n"
		l := openLiving(t, filepath.Join(t.TempDir(), "state"), "gvisor", func(o *persistent.SandboxesOptions) { with(o, secret) })
		s, err := l.Create(t.Context(), l.key, persistent.Create{Lifetime: persistent.Lifetime{Timeout: time.Minute}, Network: &persistent.NetworkWish{Allow: []string{"good.example.com"}}})
		if err != nil {
			t.Fatal(err)
		}
		const ask = `curl -sS -m 20 -H "Authorization: Bearer $KEY" https://other.example.com/key 2>&1 || true`
		l.sh(t, s.ID, `for n in 1 2; do (while ! test -e /tmp/go.$n; do sleep 0.05; done; `+ask+`) > /tmp/out.$n 2>&1 & done`)
		before := func(n string) string {
			return l.sh(t, s.ID, "touch /tmp/go."+n+"; while ! test -s /tmp/out."+n+"; do sleep 0.05; done; cat /tmp/out."+n)
		}
		if got := l.sh(t, s.ID, ask+"; echo $KEY"); !strings.Contains(got, "Could not resolve") || !strings.Contains(got, "caisson-secret-") {
			t.Errorf("before: %s", got)
		}
		if _, err := l.Handle(l.key, s.ID).SetNetwork(t.Context(), persistent.NetworkWish{Allow: []string{"other.example.com"}}); err != nil {
			t.Fatal(err)
		}
		const want = "HTTP/2.0 Bearer ***"
		if got := l.sh(t, s.ID, ask); !strings.Contains(got, want) {
			t.Errorf("a later program: %s", got)
		}
		if got := before("1"); !strings.Contains(got, want) {
			t.Errorf("an earlier program: %s", got)
		}
		if _, err := l.Handle(l.key, s.ID).Pause(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := l.Handle(l.key, s.ID).Resume(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		if got := before("2"); !strings.Contains(got, want) {
			t.Errorf("an earlier program, after a pause: %s", got)
		}
		forked, err := l.Handle(l.key, s.ID).Fork(t.Context(), 1, time.Minute)
		if err != nil || forked[0].Err != nil {
			t.Fatal(err, forked[0].Err)
		}
		if got := l.sh(t, forked[0].Sandbox.ID, ask); !strings.Contains(got, want) {
			t.Errorf("a copy: %s", got)
		}
	})
}
