// SPDX-License-Identifier: Apache-2.0

package roadtest

import (
	"context"
	"errors"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/api/v1"
	"github.com/caisson-run/caisson/audit"
	"github.com/caisson-run/caisson/client"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session/persistent"
)

// What a living sandbox may reach is changed through our own API, by its Go client,
// on the levels that have a network.
func TestSetNetworkByAPI(t *testing.T) {
	for _, level := range []string{"gvisor", "process"} {
		t.Run(level, func(t *testing.T) { onInternet(t, func(t *testing.T) { setNetworkByAPI(t, level) }) })
	}
}

// byAPI serves l's sandboxes and is a client of that.
func (l *living) byAPI(t *testing.T) *client.Client {
	t.Helper()
	const token = "the-token-of-the-test-0123456789"
	keys, err := persistent.OpenKeys(l.reg, token)
	if err != nil {
		t.Fatal(err)
	}
	frontend := v1.New(v1.Options{Sandboxes: l.Sandboxes, Keys: keys, Domain: "localhost:1"})
	s := httptest.NewServer(frontend)
	t.Cleanup(s.Close)
	c, err := client.New(client.Options{URL: s.URL, Key: token})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func setNetworkByAPI(t *testing.T, level string) {
	plugIn(t)
	const text = "version: 1\nisolation: LEVEL\nnetwork: {allow: [good.example.com, other.example.com]}\n"
	file, err := policy.Parse("key.yaml", []byte(strings.Replace(text, "LEVEL", level, 1)))
	if err != nil {
		t.Fatal(err)
	}
	l := openLiving(t, filepath.Join(t.TempDir(), "state"), level, func(o *persistent.SandboxesOptions) { o.Policies[""] = file })
	c, ctx := l.byAPI(t), t.Context()
	b, err := c.Create(ctx, client.Create{Timeout: client.In(time.Minute)})
	if err != nil {
		t.Fatal(err)
	}
	reaches := func(want ...string) {
		t.Helper()
		for _, host := range []string{"good", "other", "evil"} {
			if got := strings.Contains(l.sh(t, b.ID, "curl -sS -m 20 http://"+host+".example.com/ || true"), " host"); got != slices.Contains(want, host) {
				t.Errorf("it reaches %s: %v", host, got)
			}
		}
	}
	set := func(r client.Reach, allowed, denied string) {
		t.Helper()
		got, err := c.SetNetwork(ctx, b.ID, r)
		if err != nil {
			t.Fatal(err)
		}
		again, err := c.Get(ctx, b.ID)
		if err != nil || !slices.Equal(again.Network, got.Network) || strings.Join(got.Network, " ") != allowed || strings.Join(got.Denied, " ") != denied {
			t.Errorf("it says that it may reach %q without %q, and later %+v, %v", got.Network, got.Denied, again, err)
		}
	}
	const good, other = "good.example.com", "other.example.com"
	reaches("good", "other")
	l.sh(t, b.ID, standing)
	set(client.Reach{Allow: []string{good}}, good, "")
	if got := l.sh(t, b.ID, `while ! test -s /tmp/end.other.example.com; do sleep 0.05; done; cat /tmp/end.other.example.com; test ! -e /tmp/end.good.example.com && echo " and one open"`); got != "reset and one open" {
		t.Errorf("the connections: %s", got)
	}
	reaches("good")
	for _, r := range []client.Reach{{Allow: []string{"evil.example.com"}}, {Allow: []string{good, "internet"}}, {Allow: []string{"good.example.com:*"}}} {
		if _, err := c.SetNetwork(ctx, b.ID, r); !errors.Is(err, sandbox.ErrDenied) {
			t.Errorf("%q: %v", r.Allow, err)
		}
	}
	for _, r := range []client.Reach{{All: true, Allow: []string{good}}, {Deny: []string{good}}, {Allow: []string{""}}} {
		if _, err := c.SetNetwork(ctx, b.ID, r); !errors.Is(err, sandbox.ErrInvalid) {
			t.Errorf("%+v: %v", r, err)
		}
	}
	reaches("good")
	set(client.Reach{All: true, Deny: []string{good}}, good+" "+other, good)
	reaches("other")
	set(client.Reach{}, "", "")
	reaches()
	set(client.Reach{All: true}, good+" "+other, "")
	reaches("good", "other")

	// One that is asked for with an empty list has no network, and gets none.
	none, err := c.Create(ctx, client.Create{Timeout: client.In(time.Minute), Network: &client.Network{Allow: []string{}}})
	if err != nil || none.Posture.Network != "none" {
		t.Fatalf("%+v, %v", none, err)
	}
	if _, err := c.SetNetwork(ctx, none.ID, client.Reach{All: true}); !errors.Is(err, sandbox.ErrUnsupported) {
		t.Errorf("a sandbox without a wire: %v", err)
	}
	changes := map[string]int{}
	log, err := audit.Open(ctx, audit.Options{Dir: l.dir})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	for r, err := range log.Query(ctx, audit.Filter{Sandbox: b.ID}) {
		if err != nil {
			t.Fatal(err)
		}
		if r.Call != nil && r.Call.Kind == "change_network" {
			changes[string(r.Status)]++
		}
	}
	if changes[string(audit.Allowed)] != 4 || changes[string(audit.Refused)] < 3 {
		t.Errorf("recorded: %v", changes)
	}
}

// standing has a connection to each of two hosts that waits for its end, and says
// what that was.
const standing = `cat > /tmp/wait.py <<'end'
import http.client, sys
h = http.client.HTTPConnection(sys.argv[1], 80, timeout=20)
h.request("GET", "/")
h.getresponse().read()
c = h.sock
open("/tmp/open." + sys.argv[1], "w").close()
c.settimeout(20)
try: end = "data" if c.recv(1) else "end"
except ConnectionResetError: end = "reset"
except TimeoutError: end = "open"
open("/tmp/end." + sys.argv[1], "w").write(end)
end
for h in good other; do python3 /tmp/wait.py $h.example.com >/dev/null 2>&1 & done
while ! test -e /tmp/open.good.example.com -a -e /tmp/open.other.example.com; do sleep 0.05; done`

// What a policy says only since a sandbox was made has no place in it: its programs
// have no placeholder of a newer secret, and do not trust who would end TLS. A change
// that would need either is refused, and what was in force stays.
func TestSetNetworkNewer(t *testing.T) {
	onInternet(t, func(t *testing.T) {
		t.Setenv("API_KEY", apiKey)
		dir, ca := filepath.Join(t.TempDir(), "state"), plugIn(t)
		open := func(network string) *living {
			t.Helper()
			file, err := policy.Parse("key.yaml", []byte("version: 1\nisolation: gvisor\n"+network))
			if err != nil {
				t.Fatal(err)
			}
			return openLiving(t, dir, "gvisor", func(o *persistent.SandboxesOptions) {
				o.Grace, o.Leave, o.Policies[""] = time.Minute, true, file
			})
		}
		const allow = "network: {upstream_ca: CA, allow: [good.example.com, other.example.com]}\n"
		l := open(strings.Replace(allow, "CA", ca, 1))
		s, err := l.Create(t.Context(), l.key, persistent.Create{Lifetime: persistent.Lifetime{Timeout: time.Hour}, Network: &persistent.NetworkWish{Allow: []string{"good.example.com"}}})
		if err != nil {
			t.Fatal(err)
		}
		for _, newer := range []struct{ network, refusal string }{
			{allow + "secrets: [{name: KEY, from: \"env:API_KEY\", hosts: [other.example.com]}]\n", "its programs have no placeholder of the secret KEY"},
			{"network: {upstream_ca: CA, allow: [good.example.com, {host: other.example.com, methods: [GET]}]}\n", "its programs do not trust who would end the TLS of other.example.com"},
		} {
			if err := l.Close(context.Background()); err != nil {
				t.Fatal(err)
			}
			l = open(strings.Replace(newer.network, "CA", ca, 1))
			_, err := l.Handle(l.key, s.ID).SetNetwork(t.Context(), persistent.NetworkWish{})
			if !errors.Is(err, sandbox.ErrUnsupported) || !strings.Contains(err.Error(), newer.refusal) || sandbox.Hint(err) == "" {
				t.Errorf("%s: %v", newer.refusal, err)
			}
			if got, err := l.Handle(l.key, s.ID).Get(t.Context()); err != nil || strings.Join(got.Network, " ") != "good.example.com" {
				t.Errorf("it may reach %+v, %v", got, err)
			}
			if got := l.sh(t, s.ID, `for h in good other; do curl -sS -m 20 http://$h.example.com/; done 2>&1 || true`); !strings.Contains(got, "good host") || !strings.Contains(got, "Could not resolve host: other.example.com") {
				t.Errorf("it reaches %s", got)
			}
		}
		if err := l.Handle(l.key, s.ID).Kill(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}
