// SPDX-License-Identifier: Apache-2.0

package gvisor

import "github.com/opencontainers/runtime-spec/specs-go"

// The parts of an OCI runtime spec that this level uses, encoded as the whole ones are.
//
// Before encoding/json writes the first value of a type it learns what that looks
// like, with all that is below it: of specs.Spec also what Windows, Solaris and virtual
// machines want, control groups, hooks and devices. That took more of each run than
// everything else about the spec.
type (
	ociSpec struct {
		Version     string            `json:"ociVersion"`
		Process     *ociProcess       `json:"process,omitempty"`
		Root        *specs.Root       `json:"root,omitempty"`
		Hostname    string            `json:"hostname,omitempty"`
		Mounts      []ociMount        `json:"mounts,omitempty"`
		Annotations map[string]string `json:"annotations,omitempty"`
		Linux       *ociLinux         `json:"linux,omitempty"`
	}
	ociProcess struct {
		User            ociUser                  `json:"user"`
		Args            []string                 `json:"args,omitempty"`
		Env             []string                 `json:"env,omitempty"`
		Cwd             string                   `json:"cwd"`
		Capabilities    *specs.LinuxCapabilities `json:"capabilities,omitempty"`
		Rlimits         []specs.POSIXRlimit      `json:"rlimits,omitempty"`
		NoNewPrivileges bool                     `json:"noNewPrivileges,omitempty"`
	}
	ociUser struct {
		UID uint32 `json:"uid"`
		GID uint32 `json:"gid"`
	}
	ociMount struct {
		Destination string   `json:"destination"`
		Type        string   `json:"type,omitempty"`
		Source      string   `json:"source,omitempty"`
		Options     []string `json:"options,omitempty"`
	}
	ociLinux struct {
		UIDMappings []specs.LinuxIDMapping `json:"uidMappings,omitempty"`
		GIDMappings []specs.LinuxIDMapping `json:"gidMappings,omitempty"`
		Namespaces  []specs.LinuxNamespace `json:"namespaces,omitempty"`
	}
)
