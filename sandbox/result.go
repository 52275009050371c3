// SPDX-License-Identifier: Apache-2.0

package sandbox

import "time"

// Status says how a call ended.
type Status string

const (
	StatusSuccess          Status = "success"           // the program ended with 0
	StatusError            Status = "error"             // it ended non-zero or by its own signal
	StatusTimeout          Status = "timeout"           // the wall clock ended it
	StatusResourceExceeded Status = "resource_exceeded" // another limit ended it: Result.Resource
	StatusDenied           Status = "denied"            // policy refused it: Result.Rule; nothing ran
)

// Result is what came of one call. A figure that was not measured is absent,
// never 0.
type Result struct {
	Status    Status      `json:"status"`
	Resource  LimitName   `json:"resource,omitempty"`   // which limit ended it
	LimitsHit []LimitName `json:"limits_hit,omitempty"` // limits that failed a call without ending the program
	Rule      string      `json:"rule,omitempty"`       // which rule refused, file:line where there is a file
	Reason    string      `json:"reason,omitempty"`     // a sentence for people: why it ended or was refused
	Hint      string      `json:"hint,omitempty"`       // what would allow it, when it was refused

	ExitCode *int   `json:"exit_code,omitempty"` // the program's own; absent when a signal ended it
	Signal   string `json:"signal,omitempty"`    // "SIGSEGV"

	Stdout    []byte           `json:"-"` // frontends encode them: text where valid UTF-8
	Stderr    []byte           `json:"-"`
	Truncated map[string]int64 `json:"truncated,omitempty"` // stream → bytes cut
	// TruncatedAt is after how many bytes of what is there they are missing: the end of a
	// stream is kept, too.
	TruncatedAt map[string]int64 `json:"truncated_at,omitempty"`

	WallMS          int64  `json:"wall_ms"`
	CPUMS           *int64 `json:"cpu_ms,omitempty"`
	MemoryPeakBytes *int64 `json:"memory_peak_bytes,omitempty"`

	// Findings are what the policy's rules about code have to say of what ran, or was
	// refused; and what it left in read-write mounts that this host may run (ActionInspect).
	Findings []Finding `json:"findings,omitempty"`

	Changes     *Changes      `json:"changes,omitempty"`     // of a copy-on-write workspace; absent where there are none, or none are kept
	Files       []File        `json:"files,omitempty"`       // what was collected
	Uncollected []Uncollected `json:"uncollected,omitempty"` // what was to be, and was not, or not all of it
	Network     *NetworkUse   `json:"network,omitempty"`     // what went through; absent without a network
	Posture     Posture       `json:"posture"`
}

// FindingHostFile is the Kind of a finding in a read-write mount, and ActionInspect its
// Action: a person has to look at the file before a program of the host meets it. Text
// is its path on the host.
const (
	FindingHostFile = "host_file"
	ActionInspect   = "inspect"
)

// Finding is something that a program's text says and a rule speaks against. It is
// advice: a text that has none can do as much. Or it is a file that came into being in
// a read-write mount, or was not reached when it was looked through.
type Finding struct {
	Kind     string `json:"kind"`           // import, call, dynamic_code, dynamic_import, endless_loop, unread, host_file
	Name     string `json:"name,omitempty"` // the module, or what is called
	Language string `json:"language"`
	Text     string `json:"text"` // which text: a file's name, or which argument
	Line     int    `json:"line"`
	Column   int    `json:"column"` // in bytes
	Problem  string `json:"problem"`
	Rule     string `json:"rule,omitempty"` // file:line
	Hint     string `json:"hint,omitempty"` // what would allow it
	Action   string `json:"action"`         // deny, warn or inspect
}

// Changes is what is kept of what a call changed in its workspace.
type Changes struct {
	// ID is the change set's, and Digest that of all that is in it. Empty: nothing was kept.
	ID     string `json:"id,omitempty"`
	Digest string `json:"digest,omitempty"`
	Files  int    `json:"files"`          // that were added, changed or removed
	Held   int    `json:"held,omitempty"` // paths that are applied only where they are named
	// Ignored are files that .gitignore ignores and that were not kept.
	Ignored int `json:"ignored,omitempty"`
	// Applied are the paths that were applied.
	Applied []string `json:"applied,omitempty"`
	// Problem is why nothing was kept or, with an ID, applied; Hint what to do.
	Problem string `json:"problem,omitempty"`
	Hint    string `json:"hint,omitempty"`
}

// File is one file that was collected.
type File struct {
	Path    string `json:"path"`     // inside the sandbox
	SavedAs string `json:"saved_as"` // on the host
	Size    int64  `json:"size"`
	SHA256  string `json:"sha256"`
	// Link is where a symbolic link leads, which has neither Size nor SHA256.
	Link string `json:"link,omitempty"`
}

// Uncollected is a wish to collect that failed. The program had ended by itself, and
// what came out before is in Files.
type Uncollected struct {
	Pattern string `json:"pattern"`
	Reason  string `json:"reason"`
	Hint    string `json:"hint,omitempty"`
}

// NetworkUse is what went through a sandbox's network.
type NetworkUse struct {
	Connected int64 `json:"connected"`   // connections that were allowed
	Denied    int64 `json:"denied"`      // attempts that were refused
	Queries   int64 `json:"dns_queries"` // names that were asked for
	Sent      int64 `json:"sent"`        // bytes that left
	Received  int64 `json:"received"`    // bytes that came

	Connections []Connection `json:"connections,omitempty"`
	Refused     []Connection `json:"refused,omitempty"` // each sort once, with Count
	Omitted     int64        `json:"omitted,omitempty"` // connections and attempts that are not listed
	// Unrecorded is how many have no record of their own in the audit log, either:
	// there are bounds.
	Unrecorded int64 `json:"unrecorded,omitempty"`
	Incomplete bool  `json:"incomplete,omitempty"` // the router ended without its last word
}

// Connection is one connection, or one sort of attempt that was refused. Names
// in it are of the sandbox's making.
type Connection struct {
	Protocol string `json:"protocol"`          // tcp, dns, udp, …
	Host     string `json:"host,omitempty"`    // the name that was asked for
	Address  string `json:"address,omitempty"` // what was dialled
	Port     int    `json:"port,omitempty"`
	Rule     string `json:"rule,omitempty"`   // the entry that decided, as it was written
	From     string `json:"from,omitempty"`   // where it stands: file:line, or the flag
	Reason   string `json:"reason,omitempty"` // why it was refused, or failed
	Method   string `json:"method,omitempty"` // of a request that was refused
	Path     string `json:"path,omitempty"`   // its path, cut when it is long

	Sent       int64     `json:"sent,omitempty"`
	Received   int64     `json:"received,omitempty"`
	Started    time.Time `json:"started,omitzero"`
	DurationMS int64     `json:"duration_ms,omitempty"`
	Count      int64     `json:"count,omitempty"` // how often, when more than once
}

// Posture is what held during a call.
type Posture struct {
	Isolation string `json:"isolation"`
	Network   string `json:"network"` // "none", or "allow-list"
	Root      bool   `json:"root,omitempty"`
	// Commands is how a policy's list of commands holds: "parsed only". Empty
	// where there is none.
	Commands string `json:"commands,omitempty"`
	// Code is how a policy's rules about code hold: "advice". Empty where there are
	// none.
	Code   string                    `json:"code,omitempty"`
	Limits map[LimitName]Enforcement `json:"limits"`
	// Ended are the hosts, with those below each, whose TLS the router ended: it
	// saw what was said there. Secrets are the names of secrets that it had.
	Ended   []string `json:"tls_ended,omitempty"`
	Secrets []string `json:"secrets,omitempty"`
	// Mounts is what mounted files do not do that the host's do, in sentences.
	Mounts []string `json:"mounts,omitempty"`
	// Volumes are the names of directories that are kept for its workspace.
	Volumes []string `json:"volumes,omitempty"`
	// Toolchains are directories and files of the host that it has besides its root, for
	// their programs.
	Toolchains []string `json:"toolchains,omitempty"`
	// Open is what a network with an allow-list does not hold back, in sentences.
	Open []string `json:"network_open,omitempty"`
}

// HitSince names the limits that a call failed for from then on.
func (u *Usage) HitSince(then time.Time) (limits []LimitName) {
	for _, l := range LimitNames() {
		if at, hit := u.Hit[l]; hit && !at.Before(then) {
			limits = append(limits, l)
		}
	}
	return limits
}

// Usage is a sandbox's counters at one moment. A pointer that is nil was not
// measured.
type Usage struct {
	At         time.Time      `json:"at"`
	CPU        *time.Duration `json:"cpu,omitempty"`         // user and system, all processes since the program started
	Memory     *int64         `json:"memory,omitempty"`      // bytes now
	MemoryPeak *int64         `json:"memory_peak,omitempty"` // bytes
	Processes  *int           `json:"processes,omitempty"`   // now
	Disk       *int64         `json:"disk,omitempty"`        // bytes of scratch in use
	// Hit says when a call last failed for a limit: long ago where only that is known.
	Hit map[LimitName]time.Time `json:"-"`
}
