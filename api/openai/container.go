// SPDX-License-Identifier: Apache-2.0

package openai

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session/persistent"
	"github.com/caisson-run/caisson/session/registry"
)

// Container is a sandbox, as OpenAI's API has it.
type Container struct {
	ID            string          `json:"id"`
	Object        string          `json:"object"`
	CreatedAt     int64           `json:"created_at"`
	Status        string          `json:"status"` // running, or paused by another API
	Name          string          `json:"name"`
	LastActiveAt  int64           `json:"last_active_at"`
	ExpiresAfter  expiry          `json:"expires_after"`
	MemoryLimit   string          `json:"memory_limit,omitempty"` // what was asked for
	NetworkPolicy json.RawMessage `json:"network_policy"`
}

type expiry struct {
	Anchor  string `json:"anchor"`
	Minutes int    `json:"minutes"`
}

const (
	anchor = "last_active_at"
	// usualMinutes is how long a container may go unused that says nothing.
	usualMinutes = 20
	maxMinutes   = 24 * 60
	maxName      = 256
	maxDomains   = 100
	maxFileIDs   = 50

	// dataDir is where its files are, as models expect.
	dataDir = policy.DataDir
)

// memoryLimits are the sizes that there are, in bytes.
var memoryLimits = map[string]int64{"1g": 1 << 30, "4g": 4 << 30, "16g": 16 << 30, "64g": 64 << 30}

// The notes that make a sandbox a container; they come back with it.
const (
	noteName    = "openai.name"
	noteMemory  = "openai.memory"
	noteNetwork = "openai.network" // network_policy, as it is answered
)

// prefix begins a container's ID. When it was made follows, in nanoseconds, as 16
// hex digits, so that a page can begin behind one that is gone, and then the
// sandbox's own ID.
const prefix = "cntr_"

func containerID(b *persistent.Sandbox) string {
	return fmt.Sprintf("%s%016x%s", prefix, b.Created.UnixNano(), b.ID)
}

// parseID is the sandbox that a container's ID means, and when it was made; ok says
// that it is such an ID.
func parseID(id string) (box string, made int64, ok bool) {
	rest, ok := strings.CutPrefix(id, prefix)
	if !ok || len(rest) != 16+21 || rest[16] != 'i' || strings.Trim(rest[16:], "0123456789abcdefghijklmnopqrstuvwxyz") != "" ||
		strings.Trim(rest[:16], "0123456789abcdef") != "" {
		return "", 0, false
	}
	made, err := strconv.ParseInt(rest[:16], 16, 64)
	return rest[16:], made, err == nil
}

// SandboxOf is the ID of the sandbox that a container is; "" for what is no
// container's ID. Whether there is one is another question.
func SandboxOf(container string) string {
	box, _, _ := parseID(container)
	return box
}

func view(b *persistent.Sandbox) Container {
	c := Container{
		ID: containerID(b), Object: "container", CreatedAt: unix(b.Created), Status: string(registry.Running), Name: b.Notes[noteName],
		LastActiveAt: unix(b.Used), ExpiresAfter: expiry{anchor, int(b.Idle / time.Minute)}, MemoryLimit: b.Notes[noteMemory],
		NetworkPolicy: json.RawMessage(b.Notes[noteNetwork]),
	}
	if b.State == registry.Paused || b.State == registry.Pausing {
		c.Status = string(registry.Paused)
	}
	return c
}

// isContainer says whether a sandbox was made here.
func isContainer(b *persistent.Sandbox) bool { return b.Notes[noteNetwork] != "" }

// container is the one that a request is about.
func (s *Server) container(c *call) (*persistent.Sandbox, error) {
	id := c.r.PathValue("id")
	box, _, ok := parseID(id)
	if !ok {
		return nil, notFound("container", id, nil)
	}
	b, err := s.o.Sandboxes.Handle(c.key, box).Get(c.ctx)
	if err != nil {
		return nil, err
	}
	if !isContainer(b) || containerID(b) != id {
		return nil, notFound("container", id, nil)
	}
	return b, nil
}

// create makes a container.
func (s *Server) create(c *call) error {
	if err := c.noQuery(); err != nil {
		return err
	}
	o, err := c.body()
	if err != nil {
		return err
	}
	wish, fileIDs, err := o.wish()
	if err != nil {
		return err
	}
	sources, err := s.sources(c, fileIDs)
	if err != nil {
		return err
	}
	b, err := s.o.Sandboxes.Create(c.ctx, c.key, *wish)
	if err != nil {
		return err
	}
	for _, from := range sources {
		if err := s.copyFile(c, from, b); err != nil {
			return s.discard(c, b, err) // it lacks what was asked for
		}
	}
	if err := context.Cause(c.ctx); err != nil {
		return s.discard(c, b, err)
	}
	if err := c.answer(view(b)); err != nil {
		return s.discard(c, b, err)
	}
	if err := http.NewResponseController(c.w).Flush(); err != nil {
		s.discard(c, b, err)
		panic(http.ErrAbortHandler) // it has begun
	}
	return nil
}

// discard ends a container of which no client is told, also where the client
// has gone, for the reason why: its error.
func (s *Server) discard(c *call, b *persistent.Sandbox, why error) error {
	err := s.o.Sandboxes.Handle(c.key, b.ID).Kill(context.WithoutCancel(c.ctx))
	if err != nil && !errors.Is(err, sandbox.ErrNotFound) {
		return err
	}
	return why
}

// wish is what a request asks for.
func (o *object) wish() (_ *persistent.Create, fileIDs []string, err error) {
	if err := o.carried("name", "expires_after", "file_ids", "memory_limit", "network_policy"); err != nil {
		return nil, nil, err
	}
	w := &persistent.Create{
		Frontend: "openai", Lifetime: persistent.Lifetime{Timeout: persistent.Longest, Idle: usualMinutes * time.Minute, OnTimeout: registry.Kill},
		Writable: []string{dataDir}, Notes: map[string]string{},
	}
	if w.Notes[noteName], err = o.text("name", maxName); err != nil {
		return nil, nil, err
	}
	if w.Notes[noteName] == "" {
		return nil, nil, wrong("name", "missing_required_parameter", "name is missing")
	}
	if err := o.expiry(w); err != nil {
		return nil, nil, err
	}
	size, err := o.text("memory_limit", 16)
	if err != nil {
		return nil, nil, err
	}
	if size != "" {
		bytes, ok := memoryLimits[size]
		if !ok {
			return nil, nil, o.wrong("memory_limit", "it is none of 1g, 4g, 16g, 64g")
		}
		w.Notes[noteMemory] = size
		w.Limits = sandbox.Limits{Memory: bytes, Explicit: map[sandbox.LimitName]bool{sandbox.LimitMemory: true}}
	}
	if err := o.network(w); err != nil {
		return nil, nil, err
	}
	fileIDs, err = o.texts("file_ids", maxFileIDs)
	return w, fileIDs, err
}

// expiry reads expires_after.
func (o *object) expiry(w *persistent.Create) error {
	e, err := o.object("expires_after")
	if e == nil || err != nil {
		return err
	}
	if err := e.carried("anchor", "minutes"); err != nil {
		return err
	}
	if at, err := e.text("anchor", 64); err != nil || at != anchor {
		return e.wrong("anchor", "it is not "+anchor)
	}
	n, err := e.number("minutes", 1, maxMinutes)
	if err == nil && n == 0 {
		err = wrong("expires_after.minutes", "missing_required_parameter", "expires_after.minutes is missing")
	}
	w.Idle = time.Duration(n) * time.Minute
	return err
}

// network reads network_policy. Who says nothing has none, as with OpenAI.
func (o *object) network(w *persistent.Create) error {
	w.Network = &persistent.NetworkWish{None: true}
	w.Notes[noteNetwork] = `{"type":"disabled"}`
	n, err := o.object("network_policy")
	if n == nil || err != nil {
		return err
	}
	kind, err := n.text("type", 64)
	if err != nil {
		return err
	}
	switch kind {
	case "disabled":
		return n.carried("type")
	case "allowlist":
		// domain_secrets are refused here: secrets are the operator's, in a policy.
		if err := n.carried("type", "allowed_domains"); err != nil {
			return err
		}
		list, err := n.texts("allowed_domains", maxDomains)
		if err != nil {
			return err
		}
		if len(list) == 0 || slices.Contains(list, "") {
			return n.wrong("allowed_domains", "it names no domain")
		}
		w.Network = &persistent.NetworkWish{Allow: list}
		b, err := json.Marshal(map[string]any{"type": kind, "allowed_domains": list})
		w.Notes[noteNetwork] = string(b)
		return err
	}
	return n.wrong("type", "it is neither disabled nor allowlist")
}

func (s *Server) retrieve(c *call) error {
	if err := c.noQuery(); err != nil {
		return err
	}
	b, err := s.container(c)
	if err != nil {
		return err
	}
	return c.answer(view(b))
}

func (s *Server) remove(c *call) error {
	if err := c.noQuery(); err != nil {
		return err
	}
	b, err := s.container(c)
	if err != nil {
		return err
	}
	if err := s.o.Sandboxes.Handle(c.key, b.ID).Kill(c.ctx); err != nil {
		return err
	}
	return c.answer(deleted{containerID(b), "container.deleted", true})
}

// list lists a key's containers by when they were made. The quotas bound how many
// there are.
func (s *Server) list(c *call) error {
	p, err := c.page("name")
	if err != nil {
		return err
	}
	after := p.after
	if _, _, ok := parseID(after); after != "" && !ok {
		return wrong("after", "invalid_value", "after: it is no container's ID")
	}
	f := persistent.Filter{OldestFirst: p.asc}
	out := listed[Container]{Object: "list", Data: []Container{}}
	for {
		part, err := s.o.Sandboxes.List(c.ctx, c.key, f)
		if err != nil {
			return err
		}
		for _, b := range part.Sandboxes {
			// IDs sort as their times do.
			id := containerID(b)
			if !isContainer(b) || p.name != "" && b.Notes[noteName] != p.name || after != "" && (p.asc && id <= after || !p.asc && id >= after) {
				continue
			}
			if len(out.Data) == p.limit {
				out.HasMore = true
				break
			}
			out.Data = append(out.Data, view(b))
		}
		if f.Cursor = part.Next; f.Cursor == "" || out.HasMore {
			break
		}
	}
	if n := len(out.Data); n > 0 {
		out.FirstID, out.LastID = &out.Data[0].ID, &out.Data[n-1].ID
	}
	return c.answer(out)
}
