// SPDX-License-Identifier: Apache-2.0

// Package firecrackertest behaves as Firecracker towards who drives it: the API with its
// states ([API]) and, as a program ([Main]), the sockets and the machine's end. The machine
// itself is one of QEMU's, whose processor is emulated: no host of ours has the KVM that
// Firecracker needs.
package firecrackertest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync"
)

// API is Firecracker's, as far as caisson uses it. It is safe for use from many goroutines.
type API struct {
	// Version is what it says it is.
	Version string
	// Check, where it is not nil, refuses what is not in the contract.
	Check func(r *http.Request, body []byte) error
	// Start starts the machine, State stops its processors or has them go on. They may be
	// nil.
	Start func(*Machine) error
	State func(paused bool) error
	// Create writes the machine, which is paused, to two files, and Load makes one of them
	// that is. Rate bounds a drive from there on. They may be nil.
	Create func(m *Machine, devices, memory string) error
	Load   func(devices, memory string) (*Machine, error)
	Rate   func(Drive) error
	// Dead is called when a machine could not be loaded, once that was answered: such a
	// Firecracker ends. It may be nil.
	Dead func(error)

	mu         sync.Mutex
	machine    Machine
	configured bool // something of a machine was asked for
	runs       bool
	paused     bool
	dead       error
}

// Machine is what was asked for.
type Machine struct {
	Config struct {
		Processors int   `json:"vcpu_count"`
		Memory     int64 `json:"mem_size_mib"`
	}
	Boot struct {
		Kernel    string `json:"kernel_image_path"`
		Initrd    string `json:"initrd_path"`
		Arguments string `json:"boot_args"`
	}
	Vsock struct {
		CID    uint32 `json:"guest_cid"`
		Socket string `json:"uds_path"`
	}
	// Drives and Cards are in the order in which the machine has them.
	Drives []Drive
	Cards  []Card
	// Entropy says that it has a source of random numbers.
	Entropy bool
}

// Drive is a disk.
type Drive struct {
	ID       string      `json:"drive_id"`
	File     string      `json:"path_on_host"`
	ReadOnly bool        `json:"is_read_only"`
	Rate     RateLimiter `json:"rate_limiter"`
}

// RateLimiter is how much a drive does.
type RateLimiter struct {
	Bandwidth Bucket `json:"bandwidth"` // in bytes
	Ops       Bucket `json:"ops"`
}

// Bucket holds Size tokens, and is full again after Refill milliseconds. One of 0 is no bound.
type Bucket struct {
	Size   int64 `json:"size"`
	Refill int64 `json:"refill_time"`
}

// PerSecond is how many tokens there are in a second; 0 is no bound.
func (b Bucket) PerSecond() int64 {
	if b.Size <= 0 || b.Refill <= 0 {
		return 0
	}
	return max(b.Size*1000/b.Refill, 1)
}

// Card is a network card.
type Card struct {
	ID     string `json:"iface_id"`
	Device string `json:"host_dev_name"`
	MAC    string `json:"guest_mac"`
}

// maxBody is Firecracker's own bound, in bytes.
const maxBody = 51200

// ServeHTTP implements http.Handler.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err == nil && a.Check != nil {
		err = a.Check(r, body)
	}
	var answer any
	if err == nil {
		answer, err = a.do(r.Method+" "+r.URL.Path, body)
	}
	w.Header().Set("Content-Type", "application/json")
	status := http.StatusOK
	switch {
	case err != nil:
		status = http.StatusBadRequest
		answer = map[string]string{"fault_message": err.Error()}
	case answer == nil:
		w.WriteHeader(http.StatusNoContent)
		return
	}
	b, _ := json.Marshal(answer)
	w.Header().Set("Content-Length", strconv.Itoa(len(b)))
	w.WriteHeader(status)
	_, _ = w.Write(b)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.dead != nil && a.Dead != nil {
		_ = http.NewResponseController(w).Flush()
		a.Dead(a.dead)
	}
}

// words are an error in Firecracker's own words.
type words string

// Error implements error.
func (w words) Error() string { return string(w) }

// of is that error because of another.
func (w words) of(err error) error { return fmt.Errorf("%s: %w", string(w), err) }

// What is asked for at the wrong time is refused in these words.
const (
	errBefore = words("The requested operation is not supported before starting the microVM.")
	errAfter  = words("The requested operation is not supported after starting the microVM.")
)

// do does what is asked for, where the state allows it.
func (a *API) do(what string, body []byte) (answer any, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if what == "GET /version" {
		return map[string]string{"firecracker_version": a.Version}, nil
	}
	if a.dead != nil {
		return nil, a.dead
	}
	verb, at, _ := strings.Cut(what, " ")
	switch running := what == "PATCH /vm" || what == "PUT /snapshot/create" || strings.HasPrefix(what, "PATCH /drives/"); {
	case !running && verb != "PUT":
		return nil, fmt.Errorf("there is no %s", what)
	case running && !a.runs:
		return nil, errBefore
	case !running && a.runs:
		return nil, errAfter
	case what == "PATCH /vm":
		return nil, a.state(body)
	case what == "PUT /snapshot/create":
		return nil, a.create(body)
	case what == "PUT /snapshot/load":
		return nil, a.load(body)
	case running:
		return nil, a.rate(path.Base(at), body)
	}
	a.configured = a.configured || at != "/actions"
	return nil, a.put(at, body)
}

func (a *API) put(what string, body []byte) error {
	m := &a.machine
	switch dir, id := path.Split(what); {
	case what == "/machine-config":
		return json.Unmarshal(body, &m.Config)
	case what == "/boot-source":
		return json.Unmarshal(body, &m.Boot)
	case what == "/vsock":
		return json.Unmarshal(body, &m.Vsock)
	case what == "/entropy":
		m.Entropy = true
		return nil
	case dir == "/drives/":
		var d Drive
		if err := json.Unmarshal(body, &d); err != nil || d.ID != id {
			return fmt.Errorf("the drive of %s is called %q: %v", what, d.ID, err)
		}
		m.Drives = append(m.Drives, d)
		return nil
	case dir == "/network-interfaces/":
		var c Card
		if err := json.Unmarshal(body, &c); err != nil || c.ID != id {
			return fmt.Errorf("the card of %s is called %q: %v", what, c.ID, err)
		}
		m.Cards = append(m.Cards, c)
		return nil
	case what == "/actions":
		return a.act(body)
	}
	return fmt.Errorf("there is no PUT %s", what)
}

// act starts the machine.
func (a *API) act(body []byte) error {
	var action struct {
		Type string `json:"action_type"`
	}
	if err := json.Unmarshal(body, &action); err != nil || action.Type != "InstanceStart" {
		return fmt.Errorf("there is no action %q: %v", action.Type, err)
	}
	if a.machine.Boot.Kernel == "" {
		return fmt.Errorf("cannot start microvm without kernel configuration")
	}
	if a.Start != nil {
		if err := a.Start(&a.machine); err != nil {
			return err
		}
	}
	a.runs = true
	return nil
}

// state stops the processors or has them go on. Each may be asked for twice.
func (a *API) state(body []byte) error {
	var s struct {
		State string `json:"state"`
	}
	if err := json.Unmarshal(body, &s); err != nil || s.State != "Paused" && s.State != "Resumed" {
		return fmt.Errorf("there is no state %q: %v", s.State, err)
	}
	if a.State != nil {
		if err := a.State(s.State == "Paused"); err != nil {
			return err
		}
	}
	a.paused = s.State == "Paused"
	return nil
}

// Asked is what was asked for so far, and whether the machine was started.
func (a *API) Asked() (m Machine, runs bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.machine, a.runs
}
