// SPDX-License-Identifier: Apache-2.0

package image_test

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/image"
	"github.com/caisson-run/caisson/sandbox/drivertest"
)

// What is known of an image is on the disk before the image has its name: where the disk
// says that it is not, there is no image.
func TestInfoIsOnTheDisk(t *testing.T) {
	dir, info := t.TempDir(), &image.Stored{Digest: "sha256:0000"}
	if !drivertest.Refused(t, unix.SYS_FSYNC) {
		if err := info.Write(dir); err != nil {
			t.Error(err)
		}
		return
	}
	if err := info.Write(dir); err == nil {
		t.Error("nobody asked the disk")
	}
}
