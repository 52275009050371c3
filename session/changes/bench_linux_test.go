// SPDX-License-Identifier: Apache-2.0

package changes

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// BenchmarkApply applies 1000 files, half of them new.
func BenchmarkApply(b *testing.B) {
	host, inside := tree{}, tree{}
	for i := range 1000 {
		at := fmt.Sprintf("d%d/f%d", i%50, i)
		if i%2 == 0 {
			host.put(at, object{File, "old", false})
		}
		inside.put(at, object{File, strings.Repeat("new\n", 500), false})
	}
	layer := layerOf(host, inside, func() bool { return true })
	for b.Loop() {
		b.StopTimer()
		ws := newWorkspace(b, host)
		set := ws.keep(layer)
		b.StartTimer()
		if a, err := ws.apply(set, ApplyOptions{}); err != nil || len(a.Paths) < 1000 {
			b.Fatalf("%d, %v", len(a.Paths), err)
		}
	}
}

// BenchmarkKeep keeps ten changes in a workspace of 50,000 files.
func BenchmarkKeep(b *testing.B) {
	ws := newWorkspace(b, nil)
	for i := range 50_000 {
		dir := filepath.Join(ws.dir, fmt.Sprint("d", i%500))
		if i < 500 {
			if err := os.Mkdir(dir, 0o755); err != nil {
				b.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint("f", i)), []byte("old"), 0o644); err != nil {
			b.Fatal(err)
		}
	}
	w := newTar()
	for i := range 10 {
		w.dir(fmt.Sprint("d", i)).file(fmt.Sprintf("d%d/f%d", i, i), "new", 0o644)
	}
	layer := w.bytes()
	for b.Loop() {
		set, err := ws.store.Keep(b.Context(), ws.src, bytes.NewReader(layer))
		if err != nil || len(set.Entries) != 10 {
			b.Fatal(set, err)
		}
		b.StopTimer()
		if err := ws.store.Drop(set.ID); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}
