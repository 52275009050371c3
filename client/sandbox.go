// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/caisson-run/caisson/sandbox"
)

// Sandbox is a persistent sandbox.
type Sandbox struct {
	ID         string            `json:"id"`
	Name       string            `json:"name,omitempty"` // what its maker called it
	Template   string            `json:"template"`
	State      string            `json:"state"` // running or paused
	Metadata   map[string]string `json:"metadata,omitempty"`
	Created    time.Time         `json:"created"`
	Started    time.Time         `json:"started"` // when it was made or last resumed
	Ends       time.Time         `json:"ends,omitzero"`
	Idle       Seconds           `json:"idle,omitempty"` // how long it may go unused; 0 is for ever
	OnTimeout  string            `json:"on_timeout"`     // kill, pause or pause-files
	AutoResume bool              `json:"auto_resume,omitempty"`
	Isolation  string            `json:"isolation"`
	Limits     Limits            `json:"limits"`
	Network    []string          `json:"network,omitempty"` // what it may reach
	Denied     []string          `json:"denied,omitempty"`  // what is taken away from that
	Posture    Posture           `json:"posture"`
	Resumed    int               `json:"resumed,omitempty"`  // how often it was
	Cold       string            `json:"cold,omitempty"`     // how far it has gone cold while nothing uses it: frozen or disk
	Rebooted   string            `json:"rebooted,omitempty"` // why it last began anew with its files alone
	Unwarmed   string            `json:"unwarmed,omitempty"` // why the warmup of its template was not done in it
	Kept       string            `json:"kept,omitempty"`     // what there is of it while it is paused: all of it on disk or in memory, or its files
}

// Posture is what holds for a sandbox, or held for a run.
type Posture struct {
	Isolation string            `json:"isolation"`
	Network   string            `json:"network"` // none, or allow-list
	Root      bool              `json:"root,omitempty"`
	Commands  string            `json:"commands,omitempty"`
	Code      string            `json:"code,omitempty"`
	Limits    map[string]string `json:"limits"` // enforced, emulated or off
}

// Limits are those of a sandbox or a run: seconds, bytes, numbers. 0 is none in an
// answer, and what the policy says in a request.
type Limits struct {
	Wall      Seconds `json:"wall,omitempty"`
	CPUTime   Seconds `json:"cpu_time,omitempty"`
	CPUs      float64 `json:"cpus,omitempty"`
	Memory    int64   `json:"memory,omitempty"`
	Processes int     `json:"processes,omitempty"`
	OpenFiles int     `json:"open_files,omitempty"`
	FileSize  int64   `json:"file_size,omitempty"`
	Disk      int64   `json:"disk,omitempty"`
	Inodes    int64   `json:"inodes,omitempty"`
	Tmp       int64   `json:"tmp,omitempty"`
	IO        int64   `json:"io,omitempty"`
	IOPS      int64   `json:"iops,omitempty"`
	Output    int64   `json:"output,omitempty"`
}

// Network asks for a part of what the key's policy grants.
type Network struct {
	None  bool     `json:"none,omitempty"`
	Allow []string `json:"allow,omitzero"` // nil is all of it; an empty list is nothing
	Deny  []string `json:"deny,omitempty"`
}

// Reach is what a sandbox may reach from now on: the zero value is nothing.
type Reach struct {
	All   bool     `json:"all,omitempty"`   // all that the key's policy grants
	Allow []string `json:"allow,omitempty"` // instead of all: entries of an allow-list, each within the policy's
	Deny  []string `json:"deny,omitempty"`  // entries that are taken away from that
}

// Create says what sandbox is wanted. The zero value is one of the template base.
type Create struct {
	Template string `json:"template,omitempty"`
	Snapshot string `json:"snapshot,omitempty"` // the ID of one that it goes on from
	// Name makes one of this name, or gives the one that there is.
	Name       string            `json:"name,omitempty"`
	Metadata   map[string]string `json:"metadata,omitempty"`
	Env        map[string]string `json:"env,omitempty"`
	Timeout    Seconds           `json:"timeout,omitempty"` // how long it lives; 0 is the key's default
	Idle       Seconds           `json:"idle,omitempty"`
	OnTimeout  string            `json:"on_timeout,omitempty"` // kill, pause, or pause-files: without its memory
	AutoResume bool              `json:"auto_resume,omitempty"`
	Network    *Network          `json:"network,omitempty"` // nil is all that the policy grants
	Limits     *Limits           `json:"limits,omitempty"`
	Isolation  string            `json:"isolation,omitempty"`
}

// box is the path of a sandbox. What is no ID makes no other path.
func box(id, rest string) (string, error) {
	if id == "" || strings.Trim(id, "0123456789abcdefghijklmnopqrstuvwxyz") != "" {
		return "", sandbox.Errorf(sandbox.ErrNotFound, "sandbox "+strconv.Quote(id), "that is no sandbox's ID")
	}
	return "/sandboxes/" + id + rest, nil
}

// boxCall is call about a sandbox.
func (c *Client) boxCall(ctx context.Context, method, id, rest string, query url.Values, in, out any) error {
	path, err := box(id, rest)
	if err != nil {
		return err
	}
	return c.call(ctx, method, path, query, in, out)
}

// show is boxCall that answers with the sandbox.
func (c *Client) show(ctx context.Context, method, id, rest string, in any) (*Sandbox, error) {
	s := &Sandbox{}
	if err := c.boxCall(ctx, method, id, rest, nil, in, s); err != nil {
		return nil, err
	}
	return s, nil
}

// Create makes a sandbox.
func (c *Client) Create(ctx context.Context, w Create) (*Sandbox, error) {
	s := &Sandbox{}
	if err := c.call(ctx, http.MethodPost, "/sandboxes", nil, w, s); err != nil {
		return nil, err
	}
	return s, nil
}

// Get shows a sandbox.
func (c *Client) Get(ctx context.Context, id string) (*Sandbox, error) {
	return c.show(ctx, http.MethodGet, id, "", nil)
}

// Kill ends a sandbox.
func (c *Client) Kill(ctx context.Context, id string) error {
	return c.boxCall(ctx, http.MethodDelete, id, "", nil, nil, nil)
}

type lifetime struct {
	Timeout Seconds `json:"timeout,omitempty"`
}

// Extend lets a sandbox live for at least d from now on; 0 is the key's default.
func (c *Client) Extend(ctx context.Context, id string, d time.Duration) (*Sandbox, error) {
	return c.show(ctx, http.MethodPost, id, "/extend", lifetime{In(d)})
}

// Pause stops a sandbox with its memory, until it is resumed or killed.
func (c *Client) Pause(ctx context.Context, id string) (*Sandbox, error) {
	return c.show(ctx, http.MethodPost, id, "/pause", nil)
}

// PauseFiles is Pause without the memory: it begins anew when it is resumed, with its
// files and none of its processes.
func (c *Client) PauseFiles(ctx context.Context, id string) (*Sandbox, error) {
	return c.show(ctx, http.MethodPost, id, "/pause", struct {
		Memory bool `json:"memory"`
	}{})
}

// Resume lets a paused sandbox go on, for d from now on; 0 is as long as it had.
func (c *Client) Resume(ctx context.Context, id string, d time.Duration) (*Sandbox, error) {
	return c.show(ctx, http.MethodPost, id, "/resume", lifetime{In(d)})
}

// SetNetwork changes what a sandbox may reach, now or, when it is paused, once it goes
// on. When it returns, connections that are not allowed any more are closed. What is
// beyond the key's policy is refused (sandbox.ErrDenied), and anything for a sandbox
// that was made without a network (sandbox.ErrUnsupported).
func (c *Client) SetNetwork(ctx context.Context, id string, r Reach) (*Sandbox, error) {
	return c.show(ctx, http.MethodPut, id, "/network", r)
}

// Filter says which sandboxes are wanted; a field that is empty wants all.
type Filter struct {
	States       []string // running, paused
	Metadata     map[string]string
	Template     string
	StartedAfter time.Time
	OldestFirst  bool
	Limit        int    // of one page, 1 to 100; 0 is 100
	Cursor       string // the Next of the page before
}

// Page is one part of a list.
type Page struct {
	Sandboxes []Sandbox `json:"sandboxes"`
	Next      string    `json:"next,omitempty"` // empty at the end
	Running   int       `json:"running"`        // of all that the filter wants
}

// List lists sandboxes, newest first.
func (c *Client) List(ctx context.Context, f Filter) (*Page, error) {
	q := url.Values{}
	set := func(name, value string) {
		if value != "" {
			q.Set(name, value)
		}
	}
	set("state", strings.Join(f.States, ","))
	for name, value := range f.Metadata {
		q.Add("metadata", name+"="+value)
	}
	set("template", f.Template)
	set("cursor", f.Cursor)
	if !f.StartedAfter.IsZero() {
		set("started_after", f.StartedAfter.UTC().Format(time.RFC3339Nano))
	}
	if f.OldestFirst {
		set("order", "oldest")
	}
	if f.Limit != 0 {
		set("limit", strconv.Itoa(f.Limit))
	}
	p := &Page{}
	return p, c.call(ctx, http.MethodGet, "/sandboxes", q, nil, p)
}

// Snapshot is a sandbox as it was at one moment.
type Snapshot struct {
	ID       string    `json:"id"`
	Name     string    `json:"name,omitempty"`
	Sandbox  string    `json:"sandbox"`
	Template string    `json:"template"`
	Created  time.Time `json:"created"`
}

// Snapshot writes a running sandbox down, which goes on; name is the caller's own.
func (c *Client) Snapshot(ctx context.Context, id, name string) (*Snapshot, error) {
	s := &Snapshot{}
	in := struct {
		Name string `json:"name,omitempty"`
	}{name}
	return s, c.boxCall(ctx, http.MethodPost, id, "/snapshots", nil, in, s)
}

// Snapshots lists snapshots, newest first: those of one sandbox, unless of is empty.
func (c *Client) Snapshots(ctx context.Context, of string) ([]Snapshot, error) {
	q := url.Values{}
	if of != "" {
		q.Set("sandbox", of)
	}
	var a struct{ Snapshots []Snapshot }
	err := c.call(ctx, http.MethodGet, "/snapshots", q, nil, &a)
	return a.Snapshots, err
}

// DeleteSnapshot removes a snapshot.
func (c *Client) DeleteSnapshot(ctx context.Context, id string) error {
	if _, err := box(id, ""); err != nil {
		return sandbox.Errorf(sandbox.ErrNotFound, "snapshot "+strconv.Quote(id), "that is no snapshot's ID")
	}
	return c.call(ctx, http.MethodDelete, "/snapshots/"+id, nil, nil, nil)
}

// Fork is one copy of a sandbox, or why there is none.
type Fork struct {
	Sandbox *Sandbox
	Err     error
}

// Fork makes count copies of a running sandbox, each with d to live; 0 is the key's
// default.
func (c *Client) Fork(ctx context.Context, id string, count int, d time.Duration) ([]Fork, error) {
	in := struct {
		Count   int     `json:"count"`
		Timeout Seconds `json:"timeout,omitempty"`
	}{count, In(d)}
	var a struct {
		Forks []struct {
			Sandbox *Sandbox
			Problem *problem
		}
	}
	if err := c.boxCall(ctx, http.MethodPost, id, "/fork", nil, in, &a); err != nil {
		return nil, err
	}
	out := make([]Fork, len(a.Forks))
	for i, f := range a.Forks {
		out[i].Sandbox = f.Sandbox
		if f.Problem != nil {
			out[i].Err = f.Problem.err()
		}
	}
	return out, nil
}

// Reading is what a sandbox used at one moment; nil was not measured.
type Reading struct {
	At         time.Time `json:"at"`
	CPU        *Seconds  `json:"cpu,omitempty"`         // since it was started
	CPUPercent *float64  `json:"cpu_percent,omitempty"` // of one processor, since the reading before
	Memory     *int64    `json:"memory,omitempty"`
	MemoryPeak *int64    `json:"memory_peak,omitempty"`
	Processes  *int      `json:"processes,omitempty"`
	Disk       *int64    `json:"disk,omitempty"`
}

// Usage tells what a sandbox used since a time, oldest first; the last is of now.
func (c *Client) Usage(ctx context.Context, id string, since time.Time) ([]Reading, error) {
	q := url.Values{}
	if !since.IsZero() {
		q.Set("since", since.UTC().Format(time.RFC3339Nano))
	}
	var a struct{ Readings []Reading }
	err := c.boxCall(ctx, http.MethodGet, id, "/usage", q, nil, &a)
	return a.Readings, err
}

// Event is something that happened to a sandbox.
type Event struct {
	Seq      int64     `json:"seq"`
	At       time.Time `json:"at"`
	Kind     string    `json:"kind"` // created, adopted, network, paused, resumed, snapshot, ended
	Sandbox  string    `json:"sandbox"`
	Template string    `json:"template,omitempty"`
	Reason   string    `json:"reason,omitempty"`
}

// Events tells what happened after the event number since: to one sandbox, unless
// of is empty. Where nothing has, it waits for up to wait. next is what since is to
// be the next time.
func (c *Client) Events(ctx context.Context, of string, since int64, wait time.Duration) (events []Event, next int64, err error) {
	q := url.Values{"since": {strconv.FormatInt(since, 10)}}
	if of != "" {
		q.Set("sandbox", of)
	}
	if wait > 0 {
		q.Set("wait", strconv.FormatFloat(wait.Seconds(), 'f', -1, 64))
	}
	var a struct {
		Events []Event
		Next   int64
	}
	err = c.call(ctx, http.MethodGet, "/events", q, nil, &a)
	return a.Events, a.Next, err
}

// Log is a program that has ended, and the beginning of what it wrote.
type Log struct {
	Seq      int64     `json:"seq"`
	At       time.Time `json:"at"` // when it ended
	Command  []string  `json:"command"`
	Status   string    `json:"status"` // as a Result's, or failed
	ExitCode *int      `json:"exit_code,omitempty"`
	Signal   string    `json:"signal,omitempty"`
	Reason   string    `json:"reason,omitempty"`
	Stdout   string    `json:"stdout,omitempty"`
	Stderr   string    `json:"stderr,omitempty"`
}

// Logs shows the programs of a sandbox that ended after the one with the number
// since, as far as the daemon keeps them. Where there is none, it waits for up to
// wait. next is what since is to be the next time.
func (c *Client) Logs(ctx context.Context, id string, since int64, wait time.Duration) (logs []Log, next int64, err error) {
	q := url.Values{"since": {strconv.FormatInt(since, 10)}}
	if wait > 0 {
		q.Set("wait", strconv.FormatFloat(wait.Seconds(), 'f', -1, 64))
	}
	var a struct {
		Logs []Log
		Next int64
	}
	err = c.boxCall(ctx, http.MethodGet, id, "/logs", q, nil, &a)
	return a.Logs, a.Next, err
}

// Port is where a port of a sandbox is reached: at URL, or at the daemon's own
// address with Headers.
type Port struct {
	URL     string            `json:"url"`
	Headers map[string]string `json:"headers"`
}

// Port says where a port of a sandbox is reached.
func (c *Client) Port(ctx context.Context, id string, port uint16) (*Port, error) {
	p := &Port{}
	return p, c.boxCall(ctx, http.MethodGet, id, "/ports/"+strconv.Itoa(int(port)), nil, nil, p)
}
