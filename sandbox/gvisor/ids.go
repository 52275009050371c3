// SPDX-License-Identifier: Apache-2.0

package gvisor

import (
	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/caisson-run/caisson/internal/linux/idmap"
	"github.com/caisson-run/caisson/sandbox"
)

// identity says which host ids stand behind the ids inside.
type identity struct {
	uids, gids []specs.LinuxIDMapping
	// hostUID and hostGID are who the sandbox's user is on the host.
	hostUID, hostGID int
	// rootID is who the sandbox's root is on the host, as uid and as gid.
	rootID int
}

// newIdentity picks the host ids of one sandbox.
//
// As root, every sandbox gets a pair of ids that no other user of the host has:
// one for the root inside, which serves files, one for the user. As an ordinary
// user only one id can be mapped without setuid helpers, the caller's own: it
// becomes the user inside, so that the caller's files are the user's.
//
// base, when not 0, is the pair that it gets: that of a sandbox that goes on.
func newIdentity(u sandbox.User, euid, egid int, base uint32) (identity, error) {
	if euid != 0 {
		return identity{
			uids:    []specs.LinuxIDMapping{{ContainerID: uint32(u.UID), HostID: uint32(euid), Size: 1}},
			gids:    []specs.LinuxIDMapping{{ContainerID: uint32(u.GID), HostID: uint32(egid), Size: 1}},
			hostUID: euid, hostGID: egid,
		}, nil
	}
	if base == 0 {
		var err error
		if base, err = idmap.PrivatePair(); err != nil {
			return identity{}, err
		}
	}
	id := identity{hostUID: int(base), hostGID: int(base), rootID: int(base)}
	id.uids = []specs.LinuxIDMapping{{ContainerID: 0, HostID: base, Size: 1}}
	id.gids = []specs.LinuxIDMapping{{ContainerID: 0, HostID: base, Size: 1}}
	if u.UID != 0 {
		id.hostUID = int(base + 1)
		id.uids = append(id.uids, specs.LinuxIDMapping{ContainerID: uint32(u.UID), HostID: base + 1, Size: 1})
	}
	if u.GID != 0 {
		id.hostGID = int(base + 1)
		id.gids = append(id.gids, specs.LinuxIDMapping{ContainerID: uint32(u.GID), HostID: base + 1, Size: 1})
	}
	return id, nil
}
