// SPDX-License-Identifier: Apache-2.0

package roadtest

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session/persistent"
	"github.com/caisson-run/caisson/session/registry"
)

// shifted is the host's clock, set otherwise.
type shifted struct{ by time.Duration }

func (c shifted) Now() time.Time { return time.Now().Round(0).Add(c.by) }

func (shifted) AfterFunc(d time.Duration, f func()) func() bool { return time.AfterFunc(d, f).Stop }

func at(by time.Duration) func(*persistent.SandboxesOptions) {
	return func(o *persistent.SandboxesOptions) { o.Clock = shifted{by} }
}

// upgraded has a sandbox's memory on the disk be of another engine.
func upgraded(t *testing.T, reg *registry.DB, dir, id string) {
	t.Helper()
	rec, err := reg.Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	rec.Seal.Memory = ofAnother(t, filepath.Join(dir, "kept", rec.Kept))
	if err := reg.Put(t.Context(), rec); err != nil {
		t.Fatal(err)
	}
}

// ofAnother has the memory in a directory be of another engine, as it is after an upgrade, and
// of another processor: a test does not know which engine it has. It gives its digest.
func ofAnother(t *testing.T, kept string) string {
	t.Helper()
	name := filepath.Join(kept, "caisson.json")
	b, err := os.ReadFile(name)
	self := map[string]any{}
	if err == nil {
		err = json.Unmarshal(b, &self)
	}
	self["engine"] = "an older one"
	self["cpu"] = []string{"feature_of_another"}
	if err == nil {
		b, err = json.Marshal(self)
	}
	if err == nil {
		err = os.WriteFile(name, b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	list, err := os.ReadDir(kept)
	if err != nil {
		t.Fatal(err)
	}
	h := sha256.New() // as seals are made
	for _, e := range list {
		if e.IsDir() {
			continue
		}
		b, err := os.ReadFile(filepath.Join(kept, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(h, "%q %d\n", e.Name(), len(b))
		for at, block := range slices.Collect(slices.Chunk(b, 64<<10)) {
			if bytes.Count(block, []byte{0}) < len(block) {
				fmt.Fprintf(h, "%d %d\n", at*64<<10, len(block))
				h.Write(block)
			}
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Memory that was cut short, and memory of another engine or processor, is not gone on with: the
// sandbox begins anew with its files, and says why. A clock that was set back while there was no
// daemon gives none more time than it was ever given, and one that was set forward ends it.
func TestColdFaultsOnGVisor(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	cool := cools(t, "{freeze: 1s, disk: 2s}")
	var id string
	anew := func(t *testing.T, l *living, why string) {
		t.Helper()
		if got := l.sh(t, id, `cat ~/file; [ "$(cat /proc/$(cat /tmp/pid)/comm 2>/dev/null)" = sleep ] || echo anew`); got != "one\nanew" {
			t.Errorf("it says %q", got)
		}
		if got, err := l.Handle(l.key, id).Get(t.Context()); err != nil || !strings.Contains(got.Rebooted, why) {
			t.Errorf("it does not say why it began anew: %+v, %v", got, err)
		}
	}
	if !t.Run("cut", func(t *testing.T) {
		l := openLiving(t, dir, "gvisor", cool)
		s, err := l.Create(t.Context(), l.key, persistent.Create{Lifetime: persistent.Lifetime{Timeout: time.Hour}})
		if err != nil {
			t.Fatal(err)
		}
		id = s.ID
		start := "sleep 1000 >/dev/null 2>&1 & echo $! > /tmp/pid"
		l.sh(t, id, "echo one > ~/file; "+start)
		for _, name := range []string{"pages.img", "checkpoint.img"} {
			kept := l.coldAs(t, id, registry.OnDisk).Kept
			path := filepath.Join(dir, "kept", kept, name)
			info, err := os.Stat(path)
			if err == nil {
				err = os.Truncate(path, info.Size()/2)
			}
			if err != nil {
				t.Fatal(err)
			}
			anew(t, l, "not on the disk as it was written")
			l.sh(t, id, start)
		}
		l.coldAs(t, id, registry.OnDisk)
	}) {
		return
	}
	if !t.Run("upgraded", func(t *testing.T) {
		l := openLiving(t, dir, "gvisor", cool)
		upgraded(t, l.reg, dir, id)
	}) {
		return
	}
	if !t.Run("set back", func(t *testing.T) {
		l := openLiving(t, dir, "gvisor", cool, at(-24*time.Hour))
		got, err := l.Handle(l.key, id).Get(t.Context())
		if err != nil || time.Until(got.Ends) > -22*time.Hour {
			t.Errorf("it ends at %v, %v", got, err)
		}
		anew(t, l, "its memory was kept ")
		l.coldAs(t, id, registry.OnDisk)
	}) {
		return
	}
	t.Run("set forward", func(t *testing.T) {
		l := openLiving(t, dir, "gvisor", cool, at(24*time.Hour))
		for late := time.Now().Add(time.Minute); ; <-time.After(20 * time.Millisecond) {
			if _, err := l.Handle(l.key, id).Get(t.Context()); errors.Is(err, sandbox.ErrNotFound) {
				break
			}
			if time.Now().After(late) {
				t.Fatal("its time is over, and it is there")
			}
		}
		if left, _ := os.ReadDir(filepath.Join(dir, "kept")); len(left) > 0 {
			t.Errorf("%d are left", len(left))
		}
	})
}

// A sandbox that is woken and ended at once is woken or not, and ended; nothing of it is left.
func TestWokenAndKilledAtOnce(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	l := openLiving(t, dir, "gvisor", cools(t, "{freeze: 1s, disk: 2s}"))
	var all []string
	for range 6 {
		s, err := l.Create(t.Context(), l.key, persistent.Create{})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, s.ID)
	}
	for _, id := range all {
		l.coldAs(t, id, registry.OnDisk)
	}
	woken := make([]bool, len(all))
	var both sync.WaitGroup
	for i, id := range all {
		killing := make(chan struct{})
		wake := func() {
			_, leave, err := l.Handle(l.key, id).Enter(t.Context())
			switch {
			case err == nil:
				woken[i] = true
				leave()
			case !errors.Is(err, sandbox.ErrNotFound):
				t.Errorf("waking: %v", err)
			}
		}
		both.Go(func() {
			if i%2 == 0 { // the kill is first
				<-killing
			}
			wake()
		})
		both.Go(func() {
			close(killing)
			if err := l.Handle(l.key, id).Kill(t.Context()); err != nil {
				t.Errorf("ending: %v", err)
			}
		})
	}
	both.Wait()
	t.Logf("woken first: %v", woken)
	for _, id := range all {
		if got, err := l.Handle(l.key, id).Get(t.Context()); !errors.Is(err, sandbox.ErrNotFound) {
			t.Errorf("it is there: %+v, %v", got, err)
		}
	}
	for _, place := range []string{"kept/*", "run/r*"} {
		if left, _ := filepath.Glob(filepath.Join(dir, place)); len(left) > 0 {
			t.Errorf("left: %q", left)
		}
	}
}
