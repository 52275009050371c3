// SPDX-License-Identifier: Apache-2.0

package boot

import (
	"os"
	"strings"
	"testing"
)

// Without a driver no port will appear: it is not waited for.
func TestPortWithoutDriver(t *testing.T) {
	if _, err := os.Stat("/sys/class/virtio-ports"); err == nil {
		t.Skip("this host has the driver: /sys/class/virtio-ports is there")
	}
	if _, err := openPort(Port, 0); err == nil || !strings.Contains(err.Error(), "no port "+Port+": its kernel has no driver") {
		t.Errorf("%v", err)
	}
}
