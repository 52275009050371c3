// SPDX-License-Identifier: Apache-2.0

package roadtest

import (
	"bytes"
	"crypto/rand"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/image"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/session/persistent"
	"github.com/caisson-run/caisson/session/registry"
)

// holders are the files below dir in which a text is.
func holders(t *testing.T, dir, text string) (in []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(name string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(name)
		if bytes.Contains(b, []byte(text)) {
			in = append(in, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return in
}

// What is kept of memory on the disk, of a sandbox that has gone cold and of a template, has what
// programs held, and no secret that the router put into their requests.
func TestNoSecretInKeptMemory(t *testing.T) {
	onInternet(t, func(t *testing.T) {
		secret := "sk-" + rand.Text() // what this program has as a constant, its agent inside has, too
		t.Setenv("API_KEY", secret)
		clauses := "version: 1\nisolation: gvisor\nimages: [\"template:*\"]\ncooling: {freeze: 1s, disk: 2s}\nnetwork: {allow: [other.example.com], upstream_ca: " + plugIn(t) + "}\n"
		files := map[string]*policy.File{}
		for name, more := range map[string]string{"": "secrets: [{name: KEY, from: \"env:API_KEY\", hosts: [other.example.com]}]\n", "open": ""} {
			f, err := policy.Parse("key.yaml", []byte(clauses+more))
			if err != nil {
				t.Fatal(err)
			}
			files[name] = f
		}
		dir := filepath.Join(t.TempDir(), "state")
		l := openLiving(t, dir, "gvisor", func(o *persistent.SandboxesOptions) { o.EndOnClose, o.Policies = true, files })
		const held = "held-by-a-program"
		sharedTemplate(t, dir, "app", image.Config{Start: "x=" + held + "; sleep 1000; echo $x", Ready: "true"})
		uses, err := l.Create(t.Context(), l.key, persistent.Create{})
		if err != nil {
			t.Fatal(err)
		}
		if got := l.sh(t, uses.ID, `(x=`+held+`; sleep 1000; echo $x) >/dev/null 2>&1 & curl -sS -m 20 -H "Authorization: Bearer $KEY" https://other.example.com/key`); !strings.Contains(got, "Bearer ***") {
			t.Fatalf("the secret was not used: %s", got)
		}
		kept := l.coldAs(t, uses.ID, registry.OnDisk).Kept
		// Of a template under a policy with secrets no memory is kept; without, there is none.
		made, err := l.Create(t.Context(), l.key, persistent.Create{Template: "app"})
		if err != nil {
			t.Fatal(err)
		}
		l.coldAs(t, made.ID, registry.OnDisk)
		if list, _ := filepath.Glob(filepath.Join(dir, "kept", "*")); len(list) != 2 {
			t.Errorf("kept of two sandboxes: %q", list)
		}
		open := &persistent.Key{ID: "kopen", Name: "open", Policy: "open"}
		if _, err := l.Create(t.Context(), open, persistent.Create{Template: "app"}); err != nil {
			t.Fatal(err)
		}
		for late := time.Now().Add(time.Minute); ; <-time.After(20 * time.Millisecond) {
			if list, _ := filepath.Glob(filepath.Join(dir, "kept", "*", "pages.img")); len(list) >= 3 {
				break
			}
			if time.Now().After(late) {
				t.Fatal("no memory is kept of the template")
			}
		}
		if in := holders(t, filepath.Join(dir, "kept", kept), held); len(in) == 0 {
			t.Error("what a program held is not found: the test sees nothing")
		}
		if in := holders(t, dir, secret); len(in) > 0 {
			t.Errorf("the secret is in %q", in)
		}
	})
}

// A copy, and what went on from the disk, has the host's clock, random numbers and a token of
// its own, as it has a host name and a machine id. The boot id is the original's.
func TestWhatACopyHas(t *testing.T) {
	l := openLiving(t, filepath.Join(t.TempDir(), "state"), "gvisor", cools(t, "{freeze: 1s, disk: 2s}"), func(o *persistent.SandboxesOptions) { o.EndOnClose = true })
	s, err := l.Create(t.Context(), l.key, persistent.Create{})
	if err != nil {
		t.Fatal(err)
	}
	forked, err := l.Handle(l.key, s.ID).Fork(t.Context(), 1, time.Minute)
	if err != nil || forked[0].Err != nil {
		t.Fatal(err, forked)
	}
	copied := forked[0].Sandbox
	same := func(line string) string {
		t.Helper()
		a, b := l.sh(t, s.ID, line), l.sh(t, copied.ID, line)
		if a != b {
			t.Errorf("%s: %q and %q", line, a, b)
		}
		return a
	}
	called := func(s *persistent.Sandbox) {
		t.Helper()
		want := s.Names.Host + "\n" + s.Names.Host + "\n" + s.Names.Machine
		if got := l.sh(t, s.ID, "uname -n; cat /etc/hostname /etc/machine-id"); got != want || s.Names.Host == "" {
			t.Errorf("%s is called %q, want %q", s.ID, got, want)
		}
	}
	called(s)
	called(copied)
	if s.Names.Host == copied.Names.Host || s.Names.Machine == copied.Names.Machine {
		t.Errorf("both are %+v", s.Names)
	}
	same("cat /proc/sys/kernel/random/boot_id")
	if a, b := l.sh(t, s.ID, drawn), l.sh(t, copied.ID, drawn); a == b {
		t.Errorf("both draw %s", a)
	}
	if l.Token(s, "envd") == l.Token(copied, "envd") {
		t.Error("both have one token")
	}
	for _, id := range []string{s.ID, copied.ID} {
		for range 2 {
			before := time.Now().Unix()
			inside, err := strconv.ParseInt(l.sh(t, id, "date +%s"), 10, 64)
			if after := time.Now().Unix(); err != nil || inside < before-1 || inside > after+1 {
				t.Errorf("its clock says %d between %d and %d, %v", inside, before, after, err)
			}
			if id == s.ID {
				l.coldAs(t, id, registry.OnDisk)
				called(s)
				l.coldAs(t, id, registry.OnDisk)
			}
		}
	}
}
