// SPDX-License-Identifier: Apache-2.0

package roadtest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/audit"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
	"github.com/caisson-run/caisson/session/persistent"
	"github.com/caisson-run/caisson/session/registry"
)

// generously has sandboxes outlive their owner.
func generously(o *persistent.SandboxesOptions) { o.Grace = time.Minute }

// TestGenerousOwner is what TestKilledOwnerLeavesSandboxes kills: it has one sandbox
// in which something counts, and makes and ends others.
func TestGenerousOwner(t *testing.T) {
	o := asOwner(t, generously, func(o *persistent.SandboxesOptions) { o.Ready = 1 })
	s, _, err := o.Acquire(t.Context(), o.key, "steady", persistent.Create{Lifetime: persistent.Lifetime{Timeout: time.Hour}})
	o.must(err)
	// One process for as long as the sandbox lives, who says who it is.
	o.sh(t, s.ID, counting)
	o.say("steady %s", s.ID)
	o.churn(t, func(id string) {
		o.script(t, id, "echo $$ > ~/mark; sleep 1000 & exit 0")
		o.say("made %s", id)
	})
}

// counting starts a process that counts, once.
const counting = `[ -e ~/who ] || { sh -c 'echo $$ > ~/who; x=0; while sleep 0.02; do x=$((x+1)); echo $x > ~/count.new; mv ~/count.new ~/count; done' >/dev/null 2>&1 & }
until [ -e ~/count ]; do sleep 0.02; done; cat ~/who`

// Sandboxes of an owner that is killed at any moment, under load, are taken over with
// their processes, or gone and said to be. None is both, and nothing else is left.
func TestKilledOwnerLeavesSandboxes(t *testing.T) {
	times := 2
	if n, err := strconv.Atoi(os.Getenv("CAISSON_TEST_KILLS")); err == nil {
		times = n
	}
	dir := filepath.Join(t.TempDir(), "state")
	steady, who := "", ""
	for i := range times {
		id, made := kill(t, "TestGenerousOwner", dir, "steady")
		if t.Failed() {
			return
		}
		if steady != "" && id != steady {
			t.Fatalf("%s is not %s any more", id, steady)
		}
		steady = id
		t.Run(strconv.Itoa(i), func(t *testing.T) {
			l := openLiving(t, dir, "gvisor", generously)
			adopted := 0
			for _, id := range made {
				// It may have been about to end when its owner was killed.
				c := &session.Call{}
				c.Argv = []string{"cat", "/home/user/mark"}
				res, err := l.Handle(l.key, id).Exec(t.Context(), c, session.IO{})
				if err == nil {
					adopted++
					if len(res.Stdout) == 0 {
						t.Errorf("%s has lost its file: %+v", id, res)
					}
					err = l.Handle(l.key, id).Kill(t.Context())
				}
				if err != nil && (!errors.Is(err, sandbox.ErrNotFound) || !strings.Contains(err.Error(), "it has ended: ")) {
					t.Errorf("of a sandbox that was made is known: %v", err)
				}
			}
			t.Logf("%d of %d were taken over", adopted, len(made))
			_, err := l.Handle(&persistent.Key{ID: "another"}, steady).Get(t.Context())
			if !errors.Is(err, sandbox.ErrNotFound) {
				t.Errorf("another key sees what was taken over: %v", err)
			}
			now := l.sh(t, steady, counting)
			if who != "" && now != who {
				t.Errorf("the process that counts was %s, now it is %s", who, now)
			}
			who = now
			l.sh(t, steady, `a=$(cat ~/count); until [ "$(cat ~/count)" -gt "$a" ]; do sleep 0.02; done`)
			// Others of which only the registry knows: made, and never told.
			page, err := l.List(t.Context(), l.key, persistent.Filter{States: []registry.State{registry.Running}})
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range page.Sandboxes {
				if s.ID != steady {
					if err := l.Handle(l.key, s.ID).Kill(t.Context()); err != nil && !errors.Is(err, sandbox.ErrNotFound) {
						t.Error(err)
					}
				}
			}
			// What has no row is a pool's, or was being made: at the latest it ends
			// with the minute of grace that its keeper waits for an owner.
			for late := time.After(3 * time.Minute); ; {
				dirs, err := filepath.Glob(filepath.Join(dir, "run", "sbx_*"))
				if err != nil {
					t.Fatal(err)
				}
				if len(dirs) <= 1 {
					break
				}
				select {
				case <-late:
					t.Fatalf("run directories beside the one: %q", dirs)
				case <-time.After(10 * time.Millisecond):
				}
			}
		})
	}
}

// An owner that is stopped may let go of its sandboxes: they run on, and are the
// next one's; the policy of that one is theirs.
func TestStoppedOwnerLeavesSandboxes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	var s *persistent.Sandbox
	who := ""
	leaving := func(o *persistent.SandboxesOptions) { o.Grace, o.Leave = time.Minute, true }
	open := func(t *testing.T, change ...func(*persistent.SandboxesOptions)) *living {
		t.Helper()
		return openLiving(t, dir, "gvisor", append(change, leaving, func(o *persistent.SandboxesOptions) { o.Ready = 1 })...)
	}
	stop := func(t *testing.T, l *living) {
		t.Helper()
		if err := l.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}
	func() {
		l := open(t)
		defer stop(t, l)
		var err error
		if s, err = l.Create(t.Context(), l.key, persistent.Create{Env: map[string]string{"NAME": "value"}, Lifetime: persistent.Lifetime{Timeout: time.Hour}}); err != nil {
			t.Fatal(err)
		}
		who = l.sh(t, s.ID, counting)
	}()
	func() {
		l := open(t)
		defer stop(t, l)
		if now := l.sh(t, s.ID, counting); now != who {
			t.Errorf("the process that counts was %s, now it is %s", who, now)
		}
		if got := l.sh(t, s.ID, `echo "$NAME"`); got != "value" {
			t.Errorf("its variable is %q", got)
		}
		got, err := l.Handle(l.key, s.ID).Get(t.Context())
		if err != nil || got.State != registry.Running || !got.Ends.Equal(s.Ends) || got.Resumed != 0 {
			t.Errorf("after a restart: %+v, %v", got, err)
		}
		// It still can what sandboxes can.
		if _, err := l.Handle(l.key, s.ID).Pause(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := l.Handle(l.key, s.ID).Resume(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		if now := l.sh(t, s.ID, counting); now != who {
			t.Errorf("after a pause the process that counts is %s, it was %s", now, who)
		}
	}()
	// A policy that would make another sandbox ends this one, and says so.
	func() {
		file, err := policy.Parse("other.yaml", []byte("version: 1\nisolation: gvisor\nenv: {pass: [NAME]}\nlimits: {processes: 33}\n"))
		if err != nil {
			t.Fatal(err)
		}
		l := open(t, func(o *persistent.SandboxesOptions) { o.Policies[""] = file })
		defer stop(t, l)
		if err := l.Handle(l.key, s.ID).Kill(t.Context()); err == nil || !strings.Contains(err.Error(), "would make another one now") {
			t.Errorf("under another policy: %v", err)
		}
	}()
	kinds := recorded(t, dir, s.ID)
	if kinds["adopt_sandbox"] != 2 || kinds["end_sandbox"] != 1 {
		t.Errorf("of its life is recorded: %v", kinds)
	}
}

// What was taken over has its network again, by the policy as it is then: no more
// than that, and not what had been taken away before. What depends on a secret that is gone is closed, and that is said.
func TestAdoptedNetwork(t *testing.T) {
	onInternet(t, func(t *testing.T) {
		plugIn(t)
		dir := filepath.Join(t.TempDir(), "state")
		said := make(chan string, 16)
		open := func(text string) *living {
			t.Helper()
			file, err := policy.Parse("key.yaml", []byte(text))
			if err != nil {
				t.Fatal(err)
			}
			return openLiving(t, dir, "gvisor", func(o *persistent.SandboxesOptions) {
				o.Policies[""], o.Grace, o.Leave = file, time.Minute, true
				o.Notice = func(s string) {
					t.Log(s)
					select {
					case said <- s:
					default:
					}
				}
			})
		}
		const head = "version: 1\nisolation: gvisor\n"
		both := head + "network: {allow: [good.example.com, other.example.com]}\n"
		l := open(both)
		s, err := l.Create(t.Context(), l.key, persistent.Create{Lifetime: persistent.Lifetime{Timeout: time.Hour}})
		if err != nil {
			t.Fatal(err)
		}
		reaches := func(host string) bool {
			t.Helper()
			return strings.Contains(l.sh(t, s.ID, "curl -sS -m 20 http://"+host+"/ || true"), "good host")
		}
		next := func(text string) {
			t.Helper()
			if err := l.Close(context.Background()); err != nil {
				t.Fatal(err)
			}
			l = open(text)
		}
		if !reaches("good.example.com") || !reaches("other.example.com") {
			t.Fatal("nothing is reached")
		}
		// It goes on asking while it has no owner.
		l.sh(t, s.ID, `(while :; do curl -sS -m 1 http://good.example.com/ -o /dev/null && echo yes >> /tmp/got || echo no >> /tmp/got; sleep 0.05; done) >/dev/null 2>&1 &
until grep -q yes /tmp/got; do sleep 0.05; done`)
		next(both)
		if !reaches("good.example.com") || !reaches("other.example.com") {
			t.Error("it does not reach what its policy grants")
		}
		if _, err := l.Handle(l.key, s.ID).SetNetwork(t.Context(), persistent.NetworkWish{Allow: []string{"good.example.com"}}); err != nil {
			t.Fatal(err)
		}
		next(both)
		if !reaches("good.example.com") || reaches("other.example.com") {
			t.Error("what was taken away comes back with the next caisson")
		}
		next(head + "network: {allow: [other.example.com]}\n")
		if reaches("good.example.com") || reaches("other.example.com") {
			t.Error("a policy that grants less is not in force")
		}
		if got, err := l.Handle(l.key, s.ID).Get(t.Context()); err != nil || len(got.Network) != 0 {
			t.Errorf("it says that it may reach %+v, %v", got, err)
		}
		next(head)
		if reaches("good.example.com") {
			t.Error("a policy that grants nothing is not in force")
		}
		next(both)
		if !reaches("good.example.com") {
			t.Error("what the policy grants again does not come back")
		}
		for len(said) > 0 {
			<-said
		}
		next(both + "secrets: [{name: KEY, from: \"env:CAISSON_TEST_NOT_SET\", hosts: [good.example.com]}]\n")
		if reaches("good.example.com") {
			t.Error("a network whose secret is missing is open")
		}
		if what := <-said; !strings.Contains(what, "its network is closed") || !strings.Contains(what, "KEY") {
			t.Errorf("it is said: %s", what)
		}
		if err := l.Handle(l.key, s.ID).Kill(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

// recorded counts the records of a sandbox by kind.
func recorded(t *testing.T, dir, id string) map[string]int {
	t.Helper()
	log, err := audit.Open(t.Context(), audit.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	kinds := map[string]int{}
	for r, err := range log.Query(t.Context(), audit.Filter{Sandbox: id}) {
		if err != nil {
			t.Fatal(err)
		}
		if r.Call != nil {
			kinds[r.Call.Kind]++
		}
		if r.Ended == nil {
			t.Errorf("no outcome is recorded of %+v", r.Call)
		}
	}
	return kinds
}
