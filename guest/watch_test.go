// SPDX-License-Identifier: Apache-2.0

//go:build linux

package guest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/caisson-run/caisson/guest"
	"github.com/caisson-run/caisson/sandbox"
)

// changes reads a watch until something happened to a name.
func changes(t *testing.T, w *guest.Watch, name string) []string {
	t.Helper()
	var all []string
	for {
		c, err := w.Next()
		if err != nil {
			t.Fatalf("after %q: %v", all, err)
		}
		if c.Name == name {
			return all
		}
		all = append(all, word(c))
	}
}

func word(c sandbox.FileChange) string {
	return c.Name + " " + strings.ToLower(strings.TrimPrefix(string(c.Kind), "EVENT_TYPE_"))
}

func TestWatch(t *testing.T) {
	for _, tt := range []struct {
		name      string
		script    string
		recursive bool
		want      []string
	}{
		{name: "a file", script: "echo x >f; chmod 600 f; mv f g; rm g", want: []string{"f create", "f write", "f chmod", "f rename", "g create", "g remove"}},
		{name: "not below", script: "mkdir d; echo x >d/f", want: []string{"d create"}},
		{name: "below what was there", recursive: true, script: "echo x >old/f; rm old/f; rmdir old", want: []string{"old/f create", "old/f write", "old/f remove", "old remove"}},
		{name: "moved in", recursive: true, script: "mkdir -p ../m/n; touch ../m/n/f; mv ../m here; rm here/n/f", want: []string{"here create", "here/n create", "here/n/f create", "here/n/f remove"}},
		{name: "moved away", recursive: true, script: "mkdir old/sub; touch old/sub/f; mv old ../gone; touch ../gone/sub/g", want: []string{"old/sub create", "old/sub/f create", "old/sub/f chmod", "old rename"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newClient(t)
			output(t, c, "mkdir -p w/old")
			w, err := c.Watch(t.Context(), "w", sandbox.WatchOptions{Recursive: tt.recursive})
			if err != nil {
				t.Fatal(err)
			}
			defer w.Close()
			// Each step is seen before the next one: what falls together is not told apart.
			var got []string
			for i, step := range strings.Split(tt.script, ";") {
				seen := fmt.Sprint("seen", i)
				output(t, c, "cd w; "+step+"; touch "+seen)
				got = append(got, changes(t, w, seen)...)
			}
			got = slices.DeleteFunc(got, func(s string) bool { return !slices.Contains(tt.want, s) && strings.HasSuffix(s, " chmod") }) // touch sets times, too
			want := slices.DeleteFunc(slices.Clone(tt.want), func(s string) bool { return strings.HasSuffix(s, " chmod") && !slices.Contains(got, s) })
			slices.Sort(got)
			slices.Sort(want)
			if d := cmp.Diff(want, slices.Compact(got)); d != "" {
				t.Error(d)
			}
		})
	}
}

// A file that is uploaded is seen as envd shows it, which clients count: made, given to its
// user, written.
func TestWatchUpload(t *testing.T) {
	c := newClient(t)
	output(t, c, "mkdir w")
	w, err := c.Watch(t.Context(), "w", sandbox.WatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	var got []string
	for i := range 2 {
		if _, err := c.Upload(t.Context(), "w/f", strings.NewReader("text"), sandbox.WriteOptions{}); err != nil {
			t.Fatal(err)
		}
		seen := fmt.Sprint("seen", i)
		output(t, c, "touch w/"+seen)
		got = append(got, changes(t, w, seen)...)
	}
	got = slices.DeleteFunc(got, func(s string) bool { return !strings.HasPrefix(s, "f ") })
	if d := cmp.Diff([]string{"f create", "f chmod", "f write"}, got[:min(3, len(got))]); d != "" {
		t.Error(d)
	}
	if again := got[min(3, len(got)):]; len(again) == 0 || slices.Contains(again, "f create") || slices.Contains(again, "f chmod") {
		t.Errorf("the second time %v", again)
	}
}

// However fast directories appear, no file in them is missed, and none is told
// twice.
func TestWatchMissesNothing(t *testing.T) {
	c := newClient(t)
	output(t, c, "mkdir w")
	ctx, cancel := context.WithTimeout(t.Context(), timeout) // when one is missed
	defer cancel()
	w, err := c.Watch(ctx, "w", sandbox.WatchOptions{Recursive: true})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	const dirs = 60
	output(t, c, fmt.Sprintf("cd w; for i in {1..%d}; do mkdir -p $i/a/b; : >$i/f; : >$i/a/b/f; done; touch end", dirs))
	created := map[string]int{}
	for len(created) < 5*dirs+1 {
		ch, err := w.Next()
		if err != nil {
			t.Fatalf("after %d: %v", len(created), err)
		}
		if ch.Kind == sandbox.FileCreated {
			created[ch.Name]++
		}
	}
	for name, n := range created {
		if n > 1 {
			t.Errorf("%s is told %d times", name, n)
		}
	}
}

func TestWatchEntries(t *testing.T) {
	c := newClient(t)
	w, err := c.Watch(t.Context(), "~", sandbox.WatchOptions{Entries: true})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	output(t, c, "mkdir d; rmdir d")
	first, err := w.Next()
	if err != nil {
		t.Fatal(err)
	}
	if first.File != nil && (first.File.Path != "/home/user/d" || first.File.Kind != sandbox.Directory) { // it may be gone
		t.Errorf("the entry is %+v", first.File)
	}
	second, err := w.Next()
	if err != nil || second.File != nil || second.Kind != sandbox.FileRemoved {
		t.Errorf("then comes %+v, %v", second, err)
	}
}

func TestWatchRefuses(t *testing.T) {
	c := newClient(t)
	output(t, c, "touch f")
	for _, tt := range []struct {
		path string
		kind error
		code string
	}{
		{"none", sandbox.ErrNotFound, "not_found"},
		{"f", sandbox.ErrInvalid, "invalid_argument"},
		{"/root", sandbox.ErrInvalid, "permission_denied"},
		{"a\x00b", sandbox.ErrInvalid, ""},
	} {
		w, err := c.Watch(t.Context(), tt.path, sandbox.WatchOptions{})
		if err == nil {
			w.Close()
		}
		_, err2 := c.CreateWatcher(t.Context(), tt.path, sandbox.WatchOptions{})
		for _, err := range []error{err, err2} {
			var r *sandbox.AgentError
			if !errors.Is(err, tt.kind) || errors.As(err, &r) && r.Code != tt.code {
				t.Errorf("%q: %v", tt.path, err)
			}
		}
	}
}

func TestWatchers(t *testing.T) {
	b := newBox(t)
	c, ctx := b.dial(t, user()), t.Context()
	id, err := c.CreateWatcher(ctx, "~", sandbox.WatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	output(t, c, "mkdir a; rmdir a")
	c = b.dial(t, user()) // it belongs to no session
	var got []string
	eventually(t, "both changes", func() bool {
		all, err := c.WatcherEvents(ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		for _, ch := range all {
			got = append(got, word(ch))
		}
		return len(got) >= 2
	})
	if d := cmp.Diff([]string{"a create", "a remove"}, got); d != "" {
		t.Error(d)
	}
	if all, err := c.WatcherEvents(ctx, id); err != nil || len(all) != 0 {
		t.Errorf("asked once more it has %v, %v", all, err)
	}
	// One that is not asked keeps so much and no more. To ask takes away what it
	// has kept, which is less than all where it is behind: so there are more each
	// time.
	eventually(t, "it gives up", func() bool {
		output(t, c, `python3 -c '
import os
for i in range(9000):
    open("f", "w").close()
    os.unlink("f")'`)
		_, err = c.WatcherEvents(ctx, id)
		return err != nil
	})
	if err := c.RemoveWatcher(ctx, id); err != nil {
		t.Error(err)
	}
	for _, err := range []error{c.RemoveWatcher(ctx, id), func() error { _, err := c.WatcherEvents(ctx, id); return err }()} {
		if !errors.Is(err, sandbox.ErrNotFound) {
			t.Errorf("when it is gone: %v", err)
		}
	}
	for range 64 {
		if _, err := c.CreateWatcher(ctx, "~", sandbox.WatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.CreateWatcher(ctx, "~", sandbox.WatchOptions{}); err == nil {
		t.Error("there is no end of watchers")
	}
}
