// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/caisson-run/caisson/guest/agent"
	"github.com/caisson-run/caisson/sandbox"
)

// lookLimit bounds how long the agent may take to say what it sees.
const lookLimit = 20 * time.Second

// ownNetwork is the network namespace of the process that looks.
const ownNetwork = "/proc/self/ns/net"

// objectAt is what a name leads to.
func objectAt(name string) (object, error) {
	info, err := os.Stat(name)
	if err != nil {
		return object{}, err
	}
	return objectOf(info), nil
}

// shows are the host objects that the container is to show, and where. What is
// copy-on-write is not the source, and was mounted by caisson itself.
func (p *plan) shows() (mounts []sandbox.Mount, targets []string) {
	for _, m := range slices.Concat(p.binds, p.inserted) {
		mounts = slices.DeleteFunc(mounts, func(o sandbox.Mount) bool { return o.Target == m.Target })
		if m.Access != sandbox.CopyOnWrite {
			mounts = append(mounts, m)
		}
	}
	for _, m := range mounts {
		targets = append(targets, m.Target)
	}
	return mounts, targets
}

// errElsewhere is for an engine whose socket is here and whose containers are
// not, as in a virtual machine or at the other end of a forwarded socket: its
// process numbers mean other processes here.
var errElsewhere = &sandbox.Error{Op: "start sandbox", Kind: sandbox.ErrUnsupported, Problem: "the engine's containers are not on this machine, though its socket is",
	Hint: "name it as tcp://host:port and use --image, or use an engine of this machine"}

// verify compares what the container shows with what was handed over. Root
// looks into the container's mount namespace. An ordinary user may not, and
// asks the agent, which is still the only thing that runs there and comes from
// the image that caisson gave to the engine.
func (p *plan) verify(ctx context.Context, pid int, stream *attached) error {
	if !p.looks {
		return nil
	}
	mounts, targets := p.shows()
	var objects []object
	var network object
	var err error
	if p.asks {
		objects, err = stream.looked(ctx, len(targets)+1)
		if err == nil {
			network, objects = objects[len(targets)], objects[:len(targets)]
		}
	} else {
		network, err = objectAt(fmt.Sprintf("/proc/%d/ns/net", pid))
		if err == nil {
			objects, err = shown(pid, targets)
		}
	}
	if err != nil {
		return &sandbox.Error{Op: "start sandbox", Kind: sandbox.ErrUnsupported, Cause: err,
			Problem: "it cannot be seen what the container shows of this host",
			Hint:    "with Docker Desktop or another runtime use --image and no mounts"}
	}
	// The engine was told to leave the network alone, and none to be shared.
	if own, err := objectAt(ownNetwork); err != nil || own == network {
		return errSharedNetwork(err)
	}
	for i, m := range mounts {
		info, err := m.Source.Stat()
		if err != nil {
			return &sandbox.Error{Op: "mount " + m.Name, Kind: sandbox.ErrInvalid, Problem: "it cannot be looked at", Cause: err}
		}
		if objectOf(info) != objects[i] {
			return &sandbox.Error{Op: "mount " + m.Name, Kind: sandbox.ErrDenied, Rule: "built-in: the object that was checked",
				Problem: "the engine has mounted something else: it was replaced between check and start", Hint: "run it again"}
		}
	}
	return nil
}

func errSharedNetwork(err error) error {
	return &sandbox.Error{Op: "start sandbox", Kind: sandbox.ErrUnsupported, Problem: "the engine gave the container this host's network", Cause: err,
		Hint: "use Docker 20.10 or newer, or Podman 4"}
}

// looked is what the agent says it sees at n places.
func (a *attached) looked(ctx context.Context, n int) ([]object, error) {
	ctx, cancel := context.WithTimeout(ctx, lookLimit)
	defer cancel()
	line, err := a.firstLine(ctx)
	if err != nil {
		return nil, err
	}
	return parseLooked(line, n)
}

// parseLooked reads the agent's answer.
func parseLooked(line string, n int) ([]object, error) {
	list, ok := strings.CutPrefix(line, agent.LookPrefix)
	if !ok {
		return nil, fmt.Errorf("the agent says%s", quoted(line))
	}
	var pairs [][2]uint64
	if err := json.Unmarshal([]byte(list), &pairs); err != nil {
		return nil, err
	}
	if len(pairs) != n {
		return nil, fmt.Errorf("the agent saw %d things of %d", len(pairs), n)
	}
	objects := make([]object, n)
	for i, p := range pairs {
		objects[i] = object{p[0], p[1]}
	}
	return objects, nil
}
