// SPDX-License-Identifier: Apache-2.0

package firecrackertest

import (
	"encoding/json"
	"errors"
	"fmt"
)

// create writes the machine down.
func (a *API) create(body []byte) error {
	var c struct {
		Type    string `json:"snapshot_type"`
		Devices string `json:"snapshot_path"`
		Memory  string `json:"mem_file_path"`
	}
	if err := json.Unmarshal(body, &c); err != nil {
		return err
	}
	switch {
	case c.Type != "" && c.Type != "Full":
		return fmt.Errorf("there is no snapshot of the type %q here", c.Type)
	case !a.paused:
		return words("Create snapshot error: Cannot save the microVM state: Operation not allowed: save/restore unavailable while running")
	case a.Create == nil:
		return nil
	}
	if err := a.Create(&a.machine, c.Devices, c.Memory); err != nil {
		return words("Create snapshot error").of(err)
	}
	return nil
}

// load makes the machine that was written down. One that is asked for something else before,
// or cannot load it, is of no more use.
func (a *API) load(body []byte) error {
	var l struct {
		Devices string `json:"snapshot_path"`
		File    string `json:"mem_file_path"`
		Memory  *struct {
			Type string `json:"backend_type"`
			Path string `json:"backend_path"`
		} `json:"mem_backend"`
		Resume bool `json:"resume_vm"`
	}
	if err := json.Unmarshal(body, &l); err != nil {
		return err
	}
	switch {
	case (l.Memory == nil) == (l.File == ""):
		return errors.New("either `mem_backend` or `mem_file_path` exclusively is required")
	case l.Memory == nil || l.Memory.Type != "File":
		return errors.New("there is no such memory here")
	case a.configured:
		return words("Load snapshot error: Loading a microVM snapshot not allowed after configuring boot-specific resources.")
	}
	m := &Machine{}
	if a.Load != nil {
		var err error
		if m, err = a.Load(l.Devices, l.Memory.Path); err != nil {
			a.dead = words("Load snapshot error: Failed to restore from snapshot").of(err)
			return a.dead
		}
	}
	a.machine, a.runs, a.paused = *m, true, true
	if !l.Resume {
		return nil
	}
	return a.state([]byte(`{"state": "Resumed"}`))
}

// rate bounds a drive from there on.
func (a *API) rate(id string, body []byte) error {
	for i := range a.machine.Drives {
		d := a.machine.Drives[i]
		if d.ID != id {
			continue
		}
		if err := json.Unmarshal(body, &d); err != nil || d.ID != id || d.File != a.machine.Drives[i].File {
			return fmt.Errorf("the drive of /drives/%s is called %q: %v", id, d.ID, err)
		}
		if a.Rate != nil {
			if err := a.Rate(d); err != nil {
				return words("Drive config error").of(err)
			}
		}
		a.machine.Drives[i] = d
		return nil
	}
	return words("Drive config error").of(fmt.Errorf("there is no drive %q", id))
}
