// SPDX-License-Identifier: Apache-2.0

package approval

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/caisson-run/caisson/sandbox"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv("APPROVAL_TEST_ASK"); dir != "" {
		askForever(dir)
	}
	goleak.VerifyTestMain(m)
}

// at is a clock that tests move.
type at struct{ t atomic.Int64 }

func (a *at) now() time.Time       { return time.UnixMilli(a.t.Load()) }
func (a *at) pass(d time.Duration) { a.t.Add(d.Milliseconds()) }

func open(t *testing.T, dir string, clock *at) *Store {
	t.Helper()
	o := Options{Dir: dir}
	if clock != nil {
		o.Now = clock.now
	}
	s, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func newStore(t *testing.T) (*Store, *at) {
	clock := &at{}
	clock.t.Store(1_800_000_000_000)
	return open(t, t.TempDir(), clock), clock
}

func wish(s *Subject) Wish {
	return Wish{Subject: s, Channels: []Channel{CLI, Terminal}, Timeout: 10 * time.Minute}
}

func ask(t *testing.T, s *Store, sub *Subject) (*Request, string) {
	t.Helper()
	r, token, err := s.Ask(t.Context(), wish(sub))
	if err != nil {
		t.Fatal(err)
	}
	return r, token
}

// ada is an approver.
func ada(t *testing.T, s *Store) Who {
	t.Helper()
	_, credential, err := s.Enroll(t.Context(), Who{}, "ada")
	if err != nil {
		t.Fatal(err)
	}
	who, err := s.Authenticate(t.Context(), credential, CLI)
	if err != nil {
		t.Fatal(err)
	}
	return who
}

func denied(t *testing.T, what string, err error, want string) {
	t.Helper()
	if !errors.Is(err, sandbox.ErrDenied) || !strings.Contains(err.Error(), want) {
		t.Errorf("%s: got %v, want a denial that says %q", what, err, want)
	}
}

func TestApproval(t *testing.T) {
	s, _ := newStore(t)
	who := ada(t, s)
	r, token := ask(t, s, subject())
	if _, err := s.Use(t.Context(), token, subject()); !NotYet(err) {
		t.Errorf("before the answer: %v", err)
	}
	got, err := s.Approve(t.Context(), who, r.ID, r.Seal())
	if err != nil || got.State != Approved || got.Approver != "approver:ada" || got.Channel != CLI {
		t.Fatalf("%+v, %v", got, err)
	}
	used, err := s.Use(t.Context(), token, subject())
	if err != nil || used.State != Used || used.Approver != "approver:ada" {
		t.Fatalf("%+v, %v", used, err)
	}
	// P08: again.
	_, err = s.Use(t.Context(), token, subject())
	denied(t, "replay", err, "used already")
	if _, err := s.Approve(t.Context(), who, r.ID, r.Digest); !errors.Is(err, sandbox.ErrConflict) {
		t.Errorf("approving what was used: %v", err)
	}
}

// P08: one byte of anything is another call, and ends the approval.
func TestChangedAfterApproval(t *testing.T) {
	for name, change := range map[string]func(*Subject){
		"argument": func(s *Subject) { s.Argv[3] = "mein" }, "directory": func(s *Subject) { s.Dir = "/" },
		"value": func(s *Subject) { s.Env[1].Seal = "h3" }, "input": func(s *Subject) { s.Stdin = []byte("im") },
		"script": func(s *Subject) { s.Files[0].Digest = "sha256:ab" }, "mount": func(s *Subject) { s.Mounts[0].Object = "1:3" },
		"policy": func(s *Subject) { s.Policy = "sha256:bc" }, "sandbox": func(s *Subject) { s.Generation = "2" },
		"definition": func(s *Subject) { s.Definition = "sha256:dd" },
	} {
		for _, approved := range []bool{true, false} {
			s, _ := newStore(t)
			r, token := ask(t, s, subject())
			if approved {
				if _, err := s.Approve(t.Context(), ada(t, s), r.ID, r.Digest); err != nil {
					t.Fatal(err)
				}
			}
			other := subject()
			change(other)
			_, err := s.Use(t.Context(), token, other)
			denied(t, name, err, "not what approval was asked for")
			_, err = s.Use(t.Context(), token, subject())
			denied(t, name+", then the right one", err, "ended it")
		}
	}
}

func TestNobodyElseUsesIt(t *testing.T) {
	s, _ := newStore(t)
	r, token := ask(t, s, subject())
	if _, err := s.Approve(t.Context(), ada(t, s), r.ID, r.Digest); err != nil {
		t.Fatal(err)
	}
	other := subject()
	other.Actor = "key:other"
	_, err := s.Use(t.Context(), token, other)
	denied(t, "another actor", err, "not known")
	_, err = s.Use(t.Context(), "apt_"+strings.Repeat("A", 26), subject())
	denied(t, "a guess", err, "not known")
	_, err = s.Use(t.Context(), r.ID, subject())
	denied(t, "the ID", err, "not known")
	if _, err := s.Use(t.Context(), token, subject()); err != nil {
		t.Errorf("another's try took it: %v", err)
	}
}

func TestExpiry(t *testing.T) {
	s, clock := newStore(t)
	who := ada(t, s)
	r, token := ask(t, s, subject())
	clock.pass(10 * time.Minute)
	if _, err := s.Approve(t.Context(), who, r.ID, r.Digest); !errors.Is(err, sandbox.ErrConflict) {
		t.Errorf("a late yes: %v", err)
	}
	_, err := s.Use(t.Context(), token, subject())
	denied(t, "no answer", err, "in time")

	r, token = ask(t, s, subject())
	if _, err := s.Approve(t.Context(), who, r.ID, r.Digest); err != nil {
		t.Fatal(err)
	}
	clock.pass(10 * time.Minute)
	_, err = s.Use(t.Context(), token, subject())
	denied(t, "a yes that is too old", err, "in time")

	r, token = ask(t, s, subject())
	if _, err := s.Approve(t.Context(), who, r.ID, r.Digest); err != nil {
		t.Fatal(err)
	}
	clock.pass(-time.Hour)
	_, err = s.Use(t.Context(), token, subject())
	denied(t, "a clock that was set back", err, "in time")
}

// A no is final: for the request, and for the same question of the same agent as
// long as the question would have stood.
func TestNoIsFinal(t *testing.T) {
	s, clock := newStore(t)
	who := ada(t, s)
	r, token := ask(t, s, subject())
	if _, err := s.Deny(t.Context(), who, r.ID, "not on a Friday"); err != nil {
		t.Fatal(err)
	}
	_, err := s.Use(t.Context(), token, subject())
	denied(t, "use", err, "approver:ada denied it: not on a Friday")
	if _, err := s.Approve(t.Context(), who, r.ID, r.Digest); !errors.Is(err, sandbox.ErrConflict) {
		t.Errorf("a yes after the no: %v", err)
	}
	_, _, err = s.Ask(t.Context(), wish(subject()))
	denied(t, "asking again", err, "denied a moment ago")
	again := wish(subject())
	again.Again = true
	if _, _, err := s.Ask(t.Context(), again); err != nil {
		t.Errorf("a person who asks again: %v", err)
	}
	other := subject()
	other.Argv[1] = "pull"
	ask(t, s, other)
	clock.pass(10 * time.Minute)
	ask(t, s, subject())

	r, token = ask(t, s, other)
	if _, err := s.Approve(t.Context(), who, r.ID, r.Digest); err != nil {
		t.Fatal(err)
	}
	if err := s.Cancel(t.Context(), r.ID, "gone"); err != nil {
		t.Fatal(err)
	}
	_, err = s.Use(t.Context(), token, other)
	denied(t, "cancelled", err, "taken back")
}

func TestWhoMayAnswer(t *testing.T) {
	s, _ := newStore(t)
	r, _ := ask(t, s, subject())
	_, err := s.Approve(t.Context(), Who{}, r.ID, r.Digest)
	denied(t, "no approver", err, "only an approver")
	_, err = s.Deny(t.Context(), Who{}, r.ID, "")
	denied(t, "no approver", err, "only an approver")
	_, err = s.Approve(t.Context(), ByElicitation("codex"), r.ID, r.Digest)
	denied(t, "a channel that the policy does not name", err, "channel elicitation")
	for _, c := range []string{"", "e2b_0123456789012345678901234567890123456789", "approver_0123456789012345678901234567890123456789", "approver_"} {
		_, err = s.Authenticate(t.Context(), c, CLI)
		denied(t, "credential "+c, err, "not the credential")
	}
	who := ada(t, s)
	for _, digest := range []string{"", "sha256:", r.Seal()[:11], strings.Repeat("0", 16), r.Digest + "0", "sha256:" + strings.Repeat("0", 64)} {
		if _, err := s.Approve(t.Context(), who, r.ID, digest); !errors.Is(err, sandbox.ErrConflict) {
			t.Errorf("approving with the digest %q: %v", digest, err)
		}
	}
	if _, err := s.Approve(t.Context(), AtTerminal("uid:0"), r.ID, r.Digest); err != nil {
		t.Error(err)
	}
}

func TestApprovers(t *testing.T) {
	dir := t.TempDir()
	clock := &at{}
	clock.t.Store(1_800_000_000_000)
	s := open(t, dir, clock)
	if yes, err := s.Reachable(t.Context(), []Channel{CLI}); yes || err != nil {
		t.Error("somebody is reachable where nobody is enrolled", err)
	}
	_, credential, err := s.Enroll(t.Context(), Who{}, "ada")
	if err != nil {
		t.Fatal(err)
	}
	if yes, err := s.Reachable(t.Context(), []Channel{CLI}); !yes || err != nil {
		t.Error("nobody is reachable", err)
	}
	who, err := s.Authenticate(t.Context(), credential, CLI)
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = s.Enroll(t.Context(), Who{}, "mallory")
	denied(t, "enrolling oneself", err, "none of them vouches")
	if _, _, err := s.Enroll(t.Context(), who, "ada"); !errors.Is(err, sandbox.ErrConflict) {
		t.Errorf("a second ada: %v", err)
	}
	if _, _, err := s.Enroll(t.Context(), who, "bob"); err != nil {
		t.Error(err)
	}
	denied(t, "revoking without a credential", s.Revoke(t.Context(), Who{}, "ada"), "only an approver")
	if err := s.Revoke(t.Context(), who, "ada"); err != nil {
		t.Error(err)
	}
	_, err = s.Authenticate(t.Context(), credential, CLI)
	denied(t, "a revoked credential", err, "not the credential")
	// Of a credential only the hash is kept.
	for _, name := range []string{file, file + "-wal"} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err == nil && bytes.Contains(b, []byte(credential)) {
			t.Errorf("%s has the credential", name)
		}
	}
}

func TestQuota(t *testing.T) {
	s, _ := newStore(t)
	for i := range maxPending {
		sub := subject()
		sub.Argv[0] = strings.Repeat("a", i+1)
		ask(t, s, sub)
	}
	if _, _, err := s.Ask(t.Context(), wish(subject())); !errors.Is(err, sandbox.ErrExhausted) {
		t.Errorf("one more: %v", err)
	}
	other := subject()
	other.Actor = "key:other"
	ask(t, s, other)
}

// A caller that asks, takes it back and asks again tells webhooks each time, and
// fills the disk: that ends, and begins again later.
func TestAskedAgainAndAgain(t *testing.T) {
	s, clock := newStore(t)
	again := func(i int) error {
		sub := subject()
		sub.Argv[0] = strings.Repeat("a", i+1)
		r, _, err := s.Ask(t.Context(), wish(sub))
		if err != nil {
			return err
		}
		return s.Cancel(t.Context(), r.ID, "no more")
	}
	for i := range maxAsked {
		if err := again(i); err != nil {
			t.Fatalf("%d: %v", i, err)
		}
	}
	if err := again(0); !errors.Is(err, sandbox.ErrExhausted) {
		t.Fatalf("one more: %v", err)
	}
	// As many more as are kept, and once more: the same, a little earlier each time.
	for n := int64(1); n <= maxKept/maxAsked+1; n++ {
		past := n * askedWithin.Milliseconds()
		if _, err := s.db.ExecContext(t.Context(), `INSERT INTO requests (id, token, actor, digest, state, created, expires, timeout, channels, view, ended)
			SELECT id || ?, randomblob(32), actor, digest, state, created - ?, expires - ?, timeout, channels, view, ended - ?
			FROM requests WHERE created = ?`, n, past, past, past, clock.t.Load()); err != nil {
			t.Fatal(err)
		}
	}
	clock.t.Add(askedWithin.Milliseconds())
	for i := range 2 {
		if err := again(i); err != nil {
			t.Fatalf("later: %v", err)
		}
	}
	list, err := s.List(t.Context())
	if err != nil || len(list) > maxKept+maxAsked {
		t.Errorf("%d are kept, %v", len(list), err)
	}
}

// Of all who use one approval at once, through several processes, one does.
func TestSingleUse(t *testing.T) {
	dir := t.TempDir()
	one := open(t, dir, nil)
	r, token := ask(t, one, subject())
	if _, err := one.Approve(t.Context(), ada(t, one), r.ID, r.Digest); err != nil {
		t.Fatal(err)
	}
	stores := []*Store{one, open(t, dir, nil), open(t, dir, nil)}
	var used atomic.Int32
	var wg sync.WaitGroup
	for i := range 12 {
		wg.Go(func() {
			if _, err := stores[i%3].Use(t.Context(), token, subject()); err == nil {
				used.Add(1)
			}
		})
	}
	wg.Wait()
	if used.Load() != 1 {
		t.Errorf("it was used %d times", used.Load())
	}
}

// Wait hears of what its own process does, and of what another does.
func TestWait(t *testing.T) {
	dir := t.TempDir()
	one, two := open(t, dir, nil), open(t, dir, nil)
	who := ada(t, one)
	for _, other := range []*Store{one, two} {
		sub := subject()
		if other == two {
			sub.Argv[0] = "hg"
		}
		r, _ := ask(t, one, sub)
		got := make(chan *Request, 1)
		go func() {
			r, _ := one.Wait(t.Context(), r.ID)
			got <- r
		}()
		if _, err := other.Deny(t.Context(), who, r.ID, ""); err != nil {
			t.Fatal(err)
		}
		if r := <-got; r == nil || r.State != Denied {
			t.Errorf("%+v", r)
		}
	}
	sub := subject()
	sub.Dir = "/"
	r, _ := ask(t, one, sub)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if r, err := one.Wait(ctx, r.ID); err == nil || r != nil && r.State != Pending {
		t.Errorf("%+v, %v", r, err)
	}
}

// A token shows its own question, to the one who asked it.
func TestPresented(t *testing.T) {
	s, _ := newStore(t)
	r, token := ask(t, s, &Subject{Actor: "key:a", Kind: "run_command", Argv: []string{"x"}})
	if got, err := s.Presented(t.Context(), "key:a", token); err != nil || got.ID != r.ID {
		t.Error(got, err)
	}
	for _, c := range [][2]string{{"key:b", token}, {"key:a", r.ID}, {"key:a", ""}, {"", token}} {
		if got, err := s.Presented(t.Context(), c[0], c[1]); !errors.Is(err, sandbox.ErrDenied) {
			t.Error(c, got, err)
		}
	}
}

// Lists have pages, which come without what is long.
func TestPages(t *testing.T) {
	s, _ := newStore(t)
	var want []string
	for i := range 5 {
		r, _ := ask(t, s, &Subject{Actor: "key:" + string(rune('a'+i)), Kind: "run_command", Argv: []string{"x"}, Reasons: []Reason{{"p:1", "why"}}})
		want = append(want, r.Actor)
	}
	var got []string
	f := Filter{States: []State{Pending}, Limit: 2}
	for {
		list, next, err := s.Page(t.Context(), f)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range list {
			if got = append(got, r.Actor); len(r.View.Fields) > 0 || r.About() != "why (p:1)" {
				t.Errorf("%+v", r)
			}
		}
		if f.After = next; next == "" {
			break
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if _, _, err := s.Page(t.Context(), Filter{After: "x'"}); !errors.Is(err, sandbox.ErrInvalid) {
		t.Error(err)
	}
}
