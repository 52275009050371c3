// SPDX-License-Identifier: Apache-2.0

package gvisor

import (
	"testing"

	"github.com/caisson-run/caisson/internal/linux/idmap"
	"github.com/caisson-run/caisson/sandbox"
)

func TestIdentity(t *testing.T) {
	for _, tc := range []struct {
		name string
		user sandbox.User
		euid int
		want int // mappings
	}{
		{"root runs user", sandbox.DefaultUser(), 0, 2},
		{"root runs root", sandbox.RootUser(), 0, 1},
		{"user runs user", sandbox.DefaultUser(), 4711, 1},
		{"user runs root", sandbox.RootUser(), 4711, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			id, err := newIdentity(tc.user, tc.euid, tc.euid, 0)
			if err != nil {
				t.Fatal(err)
			}
			if len(id.uids) != tc.want || len(id.gids) != tc.want {
				t.Fatalf("%d uid and %d gid mappings, want %d", len(id.uids), len(id.gids), tc.want)
			}
			last := id.uids[len(id.uids)-1]
			if int(last.ContainerID) != tc.user.UID || int(last.HostID) != id.hostUID || last.Size != 1 {
				t.Errorf("the user is mapped by %+v, hostUID is %d", last, id.hostUID)
			}
			for _, m := range id.uids {
				if tc.euid == 0 && (m.HostID < idmap.PrivateFirst || m.HostID >= idmap.PrivateFirst+idmap.PrivateCount) {
					t.Errorf("host uid %d is not a private one", m.HostID)
				}
			}
		})
	}
}
