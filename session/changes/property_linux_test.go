// SPDX-License-Identifier: Apache-2.0

package changes

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// drawTree changes a tree at random.
func drawTree(t *rapid.T, in tree, label string) {
	name := rapid.SampledFrom([]string{"a", "b", "c d", "ü", "Makefile"})
	for i := range rapid.IntRange(0, 8).Draw(t, label) {
		at := name.Draw(t, "name")
		for range rapid.IntRange(0, 2).Draw(t, "depth") {
			at += "/" + name.Draw(t, "name")
		}
		switch rapid.IntRange(0, 5).Draw(t, "what") {
		case 0:
			in.remove(at)
		case 1:
			in.put(at, object{kind: Dir})
		case 2:
			in.put(at, object{kind: Link, text: rapid.SampledFrom([]string{"a", "../x", "/etc/passwd"}).Draw(t, "link")})
		default:
			in.put(at, object{File, fmt.Sprint(label, i), rapid.Bool().Draw(t, "exec")})
		}
	}
}

// What was changed inside is the workspace afterwards, whatever it was, and whichever way
// the overlay says it.
func TestAppliedIsInside(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		host := tree{}
		drawTree(rt, host, "host")
		inside := tree{}
		for at, o := range host {
			inside[at] = o
		}
		drawTree(rt, inside, "inside")
		ws := newWorkspace(t, host)
		layer := layerOf(host, inside, func() bool { return rapid.Bool().Draw(rt, "flip") })
		set, err := ws.store.Keep(t.Context(), ws.src, bytes.NewReader(layer))
		if err != nil {
			rt.Fatal(err)
		}
		if set == nil {
			if diff := cmp.Diff(inside, host, cmp.AllowUnexported(object{})); diff != "" {
				rt.Fatalf("nothing was kept of\n%s", diff)
			}
			return
		}
		a, err := ws.apply(set, ApplyOptions{Held: held(set)})
		if err != nil || len(a.Conflicts)+len(a.Left) > 0 {
			rt.Fatalf("%+v, %v", a, err)
		}
		if diff := cmp.Diff(inside, readTree(t, ws.dir), cmp.AllowUnexported(object{})); diff != "" {
			rt.Fatalf("%v\n-inside +host\n%s", paths(set), diff)
		}
		if a, err = ws.apply(set, ApplyOptions{Held: held(set)}); err != nil || len(a.Paths) > 0 {
			rt.Fatalf("a second time: %+v, %v", a, err)
		}
	})
}
