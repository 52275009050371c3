// SPDX-License-Identifier: Apache-2.0

package image

import (
	"os"
	"path/filepath"
	"testing"
)

// One state directory may have the packs of another, by a link.
func TestPacksOfAnother(t *testing.T) {
	one, other := t.TempDir(), t.TempDir()
	own := filepath.Join(one, PacksDir)
	if got := PacksIn(one); got != own { // it is not there yet
		t.Errorf("%s, want %s", got, own)
	}
	if err := os.Mkdir(own, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(own, filepath.Join(other, PacksDir)); err != nil {
		t.Fatal(err)
	}
	if got := PacksIn(other); got != own {
		t.Errorf("%s, want %s", got, own)
	}
}
