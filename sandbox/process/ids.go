// SPDX-License-Identifier: Apache-2.0

package process

import (
	"fmt"

	"github.com/caisson-run/caisson/internal/linux/idmap"
	"github.com/caisson-run/caisson/sandbox"
)

// identity says which host ids stand behind the ids inside.
type identity struct {
	uidMap, gidMap string // what the kernel reads (user_namespaces(7))
	// hostUID and hostGID are who the sandbox's user is on the host.
	hostUID, hostGID int
	// private says that no other user has the ids, and that there is a root
	// inside beside the user.
	private bool
}

// newIdentity picks the host ids of one sandbox.
//
// As root every sandbox gets a pair of ids that no other user of the host has:
// one for what prepares it and, in a living sandbox, for the agent; one for the
// user. As an ordinary user only the caller's own id can be mapped without
// setuid helpers: it becomes the user inside, so that the caller's files are
// the user's.
func newIdentity(u sandbox.User, euid, egid int) (identity, error) {
	if u.UID <= 0 || u.GID <= 0 {
		return identity{}, sandbox.Errorf(sandbox.ErrInvalid, "start sandbox", "uid %d, gid %d is not a user", u.UID, u.GID)
	}
	if euid != 0 {
		return identity{
			uidMap:  fmt.Sprintf("%d %d 1\n", u.UID, euid),
			gidMap:  fmt.Sprintf("%d %d 1\n", u.GID, egid),
			hostUID: euid, hostGID: egid,
		}, nil
	}
	base, err := idmap.PrivatePair()
	if err != nil {
		return identity{}, err
	}
	return identity{
		uidMap:  fmt.Sprintf("0 %d 1\n%d %d 1\n", base, u.UID, base+1),
		gidMap:  fmt.Sprintf("0 %d 1\n%d %d 1\n", base, u.GID, base+1),
		hostUID: int(base + 1), hostGID: int(base + 1), private: true,
	}, nil
}
