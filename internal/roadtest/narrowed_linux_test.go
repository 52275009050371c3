// SPDX-License-Identifier: Apache-2.0

package roadtest

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/session/persistent"
)

// A sandbox that was made ahead with the policy's network reaches, for who asks for a
// part of that, no more than the part, from its first program on.
func TestStockIsNarrowed(t *testing.T) {
	onInternet(t, func(t *testing.T) {
		plugIn(t)
		l := openLiving(t, filepath.Join(t.TempDir(), "state"), "gvisor", func(o *persistent.SandboxesOptions) {
			file, err := policy.Parse("key.yaml", []byte("version: 1\nisolation: gvisor\nnetwork: {allow: [internet]}\n"))
			if err != nil {
				t.Fatal(err)
			}
			o.Policies[""], o.Ready, o.EndOnClose = file, 1, true
		})
		late := time.After(2 * time.Minute)
		for i, c := range []struct {
			wish persistent.NetworkWish
			want string
		}{
			{persistent.NetworkWish{Allow: []string{goodAddr + "/32:*"}}, goodAddr},
			{persistent.NetworkWish{Allow: []string{"good.example.com"}}, "good.example.com"},
			{persistent.NetworkWish{Deny: []string{evilAddr + "/32"}}, goodAddr + " good.example.com"},
			{persistent.NetworkWish{Allow: []string{evilAddr + ":8080"}}, ""},
			{persistent.NetworkWish{}, goodAddr + " " + evilAddr + " good.example.com"},
		} {
			for now := l.WarmPool(); now.Waiting == 0; now = l.WarmPool() {
				select {
				case <-now.Grown:
				case <-late:
					t.Fatalf("%+v", now)
				}
			}
			s, err := l.Create(t.Context(), l.key, persistent.Create{Network: &c.wish})
			if err != nil {
				t.Fatal(err)
			}
			if got := l.WarmPool(); got.Taken != int64(i+1) {
				t.Errorf("%+v: %+v", c.wish, got)
			}
			got := l.sh(t, s.ID, `for a in `+goodAddr+` `+evilAddr+` good.example.com; do curl -sS -m 20 http://$a/ 2>/dev/null | grep -q ' host' && printf '%s ' $a; done; true`)
			if got = strings.TrimSpace(got); got != c.want {
				t.Errorf("%+v: it reaches %q, want %q", c.wish, got, c.want)
			}
			if len(c.wish.Allow) > 0 && !strings.Contains(strings.Join(s.Network, " "), strings.TrimSuffix(c.wish.Allow[0], ":*")) || strings.Join(s.Denied, " ") != strings.Join(c.wish.Deny, " ") {
				t.Errorf("%+v: it says %q without %q", c.wish, s.Network, s.Denied)
			}
			if err := l.Handle(l.key, s.ID).Kill(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	})
}
