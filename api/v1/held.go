// SPDX-License-Identifier: Apache-2.0

package v1

import "github.com/caisson-run/caisson/sandbox"

// Posture is what held for a sandbox or a run.
type Posture struct {
	Isolation string            `json:"isolation" doc:"The level"`
	Network   string            `json:"network" doc:"none, or allow-list"`
	Root      bool              `json:"root,omitempty" doc:"Its programs are the sandbox's own root"`
	Commands  string            `json:"commands,omitempty" doc:"How a policy's list of commands holds"`
	Code      string            `json:"code,omitempty" doc:"How a policy's rules about code hold"`
	Limits    map[string]string `json:"limits" doc:"By limit: enforced, emulated or off"`
}

func posture(p sandbox.Posture) Posture {
	v := Posture{Isolation: p.Isolation, Network: p.Network, Root: p.Root, Commands: p.Commands, Code: p.Code, Limits: map[string]string{}}
	for name, how := range p.Limits {
		v.Limits[string(name)] = string(how)
	}
	return v
}

// Traffic is what went through a network.
type Traffic struct {
	Connected int64 `json:"connected" doc:"Connections that were allowed"`
	Denied    int64 `json:"denied" doc:"Attempts that were refused"`
	Queries   int64 `json:"dns_queries" doc:"Names that were asked for"`
	Sent      int64 `json:"sent" doc:"Bytes that left"`
	Received  int64 `json:"received" doc:"Bytes that came"`
}
