// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import "fmt"

// Command is what the host asks the agent to run. Both directions are JSON,
// one value a line; several commands may run at once.
type Command struct {
	ID   int
	As   setting
	Argv []string
	Dir  string   // /job when empty
	Env  []string // added to the setting's
}

// Event is what the agent answers.
type Event struct {
	Hello bool   `json:",omitempty"` // it is up, files are unpacked
	ID    int    `json:",omitempty"`
	Out   []byte `json:",omitempty"`
	Err   []byte `json:",omitempty"`
	Done  bool   `json:",omitempty"`
	Code  int    `json:",omitempty"` // 128+n for a signal
	Error string `json:",omitempty"` // it could not be started
}

// setting is who runs a command, and with what say over cgroups.
type setting string

const (
	// asRoot: uid 0; in the root cgroup, or in the agent's delegated service.
	asRoot setting = "root"
	// asDelegated: uid 1000 in a subtree that was chowned to it (tiny init).
	asDelegated setting = "delegated"
	// asBare: uid 1000 in a cgroup of root's, with no service manager to ask.
	asBare setting = "bare"
	// asScope: uid 1000 in systemd-run --user --scope -p Delegate=yes.
	asScope setting = "scope"
	// asSession: uid 1000 as after a login: a service manager to ask, nothing
	// delegated yet.
	asSession setting = "session"
)

func settings() []string {
	return []string{string(asRoot), string(asDelegated), string(asBare), string(asScope), string(asSession)}
}

const (
	userID  = 1000
	userDir = "/run/user/1000"
	jobDir  = "/job"
	// agentName is what the guest's init starts us as.
	agentName = "v2guest-agent"
	agentPath = "/run/" + agentName
	portName  = "v2.agent"
)

// environment of a command in setting s.
func environment(s setting) []string {
	env := []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8", "TERM=dumb",
		"V2GUEST=1",  // tests that need a real cgroup v2 run, and must not skip
		"V2_SLOW=20", // deadlines are for real processors: times this
	}
	if s == asRoot {
		return append(env, "HOME=/root", "USER=root", "XDG_STATE_HOME=/scratch/root", "TMPDIR=/scratch/tmp")
	}
	env = append(env, "HOME=/home/dev", "USER=dev", "XDG_STATE_HOME=/scratch/dev", "TMPDIR=/scratch/tmp")
	if s == asScope || s == asSession {
		env = append(env, "XDG_RUNTIME_DIR="+userDir, fmt.Sprintf("DBUS_SESSION_BUS_ADDRESS=unix:path=%s/bus", userDir))
	}
	return env
}
