// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"fmt"

	"github.com/caisson-run/caisson/internal/linux/idmap"
	"github.com/caisson-run/caisson/sandbox"
)

// identity says who root and the user are outside of the container.
type identity struct {
	// own says that the agent makes a user namespace, since the engine makes
	// none: the ids below are the host's. Otherwise they are the container's.
	own              bool
	rootID           int
	userUID, userGID int
}

// newIdentity picks the ids of one sandbox.
//
// Where the engine gives containers ids of their own, these are enough. Else
// root's sandboxes get a pair of ids that no user of the host has, and an
// ordinary user's run as that user, whose files the mounts are.
func newIdentity(f *facts, u sandbox.User, euid, egid int) (identity, error) {
	if !f.namespaces() {
		return identity{rootID: 0, userUID: u.UID, userGID: u.GID}, nil
	}
	pair, err := idmap.PrivatePair()
	if err != nil {
		return identity{}, err
	}
	base := int(pair)
	id := identity{own: true, rootID: base, userUID: base + 1, userGID: base + 1}
	if euid != 0 {
		id.userUID, id.userGID = euid, egid
	}
	return id, nil
}

// arguments tell the agent.
func (id identity) arguments() []string {
	if !id.own {
		return nil
	}
	return []string{"-map", fmt.Sprintf("%d:%d:%d:%d", id.rootID, id.userUID, id.rootID, id.userGID)}
}

// capabilities are those of the container's root: in its own user namespace the
// agent has others, which reach nothing outside.
func (id identity) capabilities(owns bool) []string {
	switch {
	case !id.own:
		return agentCapabilities
	case owns: // see plan.scratch
		return append([]string{"CHOWN"}, mapCapabilities...)
	}
	return mapCapabilities
}

var (
	// agentCapabilities are what the agent needs of the container's root: to
	// become the user, to give files away, to signal, and to reach every file.
	// None of it is passed on to programs, whom no_new_privs keeps from it as
	// well.
	agentCapabilities = []string{"CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "SETPCAP"}
	// mapCapabilities are what it takes to write the map of a user namespace.
	mapCapabilities = []string{"SETGID", "SETUID"}
)
