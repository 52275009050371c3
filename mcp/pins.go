// SPDX-License-Identifier: Apache-2.0

package mcp

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/caisson-run/caisson/internal/files"
	"github.com/caisson-run/caisson/sandbox"
)

// Pins keep what was approved of servers: of each tool what it said of itself. A
// server can change that at any time, and a model would follow it (a rug pull);
// so what differs from its pin is not offered until it is approved. The first
// sight of a server approves what it has then.
type Pins struct {
	// Dir is a private directory in the state directory.
	Dir string
}

// Pin is what was approved of one server.
type Pin struct {
	Server  string              `json:"server"`
	Command []string            `json:"command"`
	Image   string              `json:"image,omitempty"`
	At      time.Time           `json:"at"`
	Tools   map[string]ToolSeen `json:"tools"`
}

// ToolSeen is a tool as it was when it was approved.
type ToolSeen struct {
	Digest     string          `json:"digest"`
	Definition json.RawMessage `json:"definition"`
}

const maxPin = 16 << 20

// file names the pin of a server: by all that says which server it is. Another
// command is another server.
func (p *Pins) file(server, image string, command []string) string {
	b, _ := json.Marshal([]any{server, image, command}) // texts
	sum := sha256.Sum256(b)
	return filepath.Join(p.Dir, hex.EncodeToString(sum[:16])+".json")
}

// Read returns what was approved; nil when the server was never seen. A pin that
// cannot be read is an error: taking the server for a new one would approve
// whatever it says now.
func (p *Pins) Read(server, image string, command []string) (*Pin, error) {
	f, err := os.Open(p.file(server, image, command))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var b []byte
	if err == nil {
		defer f.Close()
		b, err = io.ReadAll(io.LimitReader(f, maxPin))
	}
	pin := &Pin{}
	if err == nil {
		err = json.Unmarshal(b, pin)
	}
	if err != nil {
		return nil, &sandbox.Error{Op: "pins of " + server, Kind: sandbox.ErrUnavailable, Problem: "what was approved of it cannot be read",
			Hint: "approve it anew: caisson mcp approve", Cause: err}
	}
	return pin, nil
}

// First keeps the pin of a server that was never seen and returns the one that
// counts, which is another process's when that was first.
func (p *Pins) First(pin *Pin) (*Pin, error) {
	err := p.write(pin, files.Make)
	if !errors.Is(err, fs.ErrExist) {
		return pin, err
	}
	other, err := p.Read(pin.Server, pin.Image, pin.Command)
	if err == nil && other != nil {
		*pin = *other
	}
	return pin, err
}

// Approve keeps a pin in place of the one there is.
func (p *Pins) Approve(pin *Pin) error { return p.write(pin, files.Replace) }

func (p *Pins) write(pin *Pin, place func(file string, content []byte) error) error {
	b, err := json.Marshal(pin)
	if err == nil {
		err = os.MkdirAll(p.Dir, 0o700)
	}
	if err == nil {
		err = place(p.file(pin.Server, pin.Image, pin.Command), append(b, '\n'))
	}
	if err != nil {
		return &sandbox.Error{Op: "pins of " + pin.Server, Kind: sandbox.ErrUnavailable, Problem: "what was approved of it cannot be kept",
			Hint: "free some space in the state directory", Cause: err}
	}
	return nil
}
