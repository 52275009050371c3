// SPDX-License-Identifier: Apache-2.0

package build

import (
	"path/filepath"
	"testing"

	"github.com/caisson-run/caisson/image"
	"github.com/caisson-run/caisson/image/imagetest"
	"github.com/caisson-run/caisson/image/reference"
)

// What was got with a login stays until the build ends, and no longer; what another build got
// with one stays until that ends.
func TestDiscard(t *testing.T) {
	name := imagetest.Registry(t) + "/acme/private:1"
	imagetest.New(t, imagetest.Config{}, imagetest.Layer(t, "etc/")).Push(name)
	images, err := image.OpenStore(filepath.Join(t.TempDir(), "images"))
	if err != nil {
		t.Fatal(err)
	}
	r, err := reference.Parse(name)
	if err != nil {
		t.Fatal(err)
	}
	begin := func() *work {
		w := &work{Builder: &Builder{Images: images}, Request: &Request{Login: &image.Login{Username: "me", Password: "x"}}, found: map[string]*image.Stored{}}
		if _, err := w.pullOnce(t.Context(), r, name, image.PullOptions{}); err != nil {
			t.Fatal(err)
		}
		return w
	}
	one, other := begin(), begin()
	for i, w := range []*work{one, other} {
		if list, err := images.List(); err != nil || len(list) != 1 {
			t.Errorf("%d: %v, %v", i, list, err)
		}
		w.discard()
	}
	if list, err := images.List(); err != nil || len(list) != 0 {
		t.Errorf("%v, %v", list, err)
	}
}
