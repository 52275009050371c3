// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"slices"

	"github.com/caisson-run/caisson/internal/hostpath"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session/volume"
)

// addVolumes mounts the workspace's volumes. No program of the host runs what is in
// them, so nothing there is protected, and no pattern hides it.
func (e *Environment) addVolumes() error {
	for _, v := range e.o.Plan.Volumes {
		if slices.ContainsFunc(e.Spec.Mounts, func(m sandbox.Mount) bool { return m.Target == v.Target }) {
			return &sandbox.Error{Op: "volume " + v.Name, Kind: sandbox.ErrInvalid, Problem: "something else is at " + v.Target, Hint: "give it another target"}
		}
		src, err := volume.In(e.o.Host.StateDir).Use(volume.Options{
			Name: v.Name, Workspace: e.workspace, Size: v.Size, Files: v.Files,
			Use: hostpath.Use{Run: e.Spec.StateDir, StateDir: e.o.Host.StateDir, Level: e.o.Plan.Isolation, Own: !e.o.Caps.LiveFiles},
		})
		if err != nil {
			return err
		}
		e.o.Host.Undo.Close(src)
		m := sandbox.Mount{Source: src.File, Name: src.Name, Target: v.Target, Access: sandbox.ReadWrite, Dir: true}
		e.Spec.Mounts = append(e.Spec.Mounts, m)
		e.Mounts = append(e.Mounts, Mount{Mount: m})
	}
	return nil
}
