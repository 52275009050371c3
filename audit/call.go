// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"strconv"
	"strings"
	"time"

	"github.com/caisson-run/caisson/sandbox"
)

// Status is how a call stands in the record.
type Status string

// The statuses; those of a connection are Allowed, Refused and Failed, too.
// Unfinished and Pruned are read, never written.
const (
	Allowed    Status = "allowed"    // it ran; Ending.Result says how it ended
	Refused    Status = "refused"    // policy or a clause that cannot be enforced refused it; nothing ran
	Failed     Status = "failed"     // caisson could not carry it out
	Unfinished Status = "unfinished" // it still runs, or its caisson was killed
	Pruned     Status = "pruned"     // retention dropped what was known of it
)

// Intent is what is about to be done. Values of environment variables and
// secrets have no place in it.
type Intent struct {
	Actor     string   // who: "ada", "uid:1000" where that user has no name, "key:ci", "approver:ada"
	Kind      string   // "run_command", "run_code", "call_tool", "start_sandbox", …
	Tool      string   // name of the tool that was called, where one was
	Params    []byte   // its arguments, JSON, without what is marked secret; kept as content
	Sandbox   string   // the sandbox's id
	Argv      []string // the command line; kept as content
	Code      []byte   // source that was handed over; kept as content
	Dir       string   // working directory inside
	User      string   // whose rights it has inside, where that is not the sandbox's own user
	Env       []string // names; of NAME=value the value is thrown away
	Secrets   []string // names of secrets that are put in on the way out
	Policy    string   // name of the policy, "/etc/caisson/policy.yaml"
	PolicySHA string   // digest of the policy as it was decided by, hex
	Isolation string   // the level
	Network   string   // "none", or what is allowed
	Image     string   // the container image: its reference and the digest of what it was, "python:3.14@sha256:…"
	Mounts    []Mount
	Limits    sandbox.Limits
	Labels    map[string]string // the agent's own words
	Overrides []string          // what --override loosened
	// Approval is what the record is about, or by what the call may run.
	Approval *Approval

	// Ends says that it ends something: it may spend the reserve. It is not recorded.
	Ends bool
	// Account is whom Meter charges with its records; empty is no account. It is not
	// recorded.
	Account string
}

// Approval is a question to a person, and what became of it.
type Approval struct {
	ID     string   `json:"id"`
	Digest string   `json:"digest"` // of everything that decides what the call does
	State  string   `json:"state"`
	Rules  []string `json:"rules,omitempty"` // that ask
	// Approver, Channel and Note are the answer's.
	Approver string `json:"approver,omitempty"`
	Channel  string `json:"channel,omitempty"`
	Note     string `json:"note,omitempty"`
}

// Mount is one host path that a call was given, by name.
type Mount struct {
	Name   string `json:"name"`
	Target string `json:"target"`
	Access string `json:"access"`        // ro, cow, rw
	Git    string `json:"git,omitempty"` // rw: code may write in its repositories
}

// Outcome is what came of it.
type Outcome struct {
	// Status is Allowed, Refused or Failed.
	Status Status
	// Result is what ran, or the refusal; nil when it failed.
	Result *sandbox.Result
	// Stdout and Stderr are the streams. Where they are nil those of Result
	// are taken.
	Stdout, Stderr *Capture
	// Error is why it failed or was refused, a sentence.
	Error string
	// Connections are what its network did last; see [Log.Connections]. They are
	// records of their own, made in one commit with this one.
	Connections []Connection
}

// Call is an Intent as it is recorded.
type Call struct {
	Actor     string            `json:"actor"`
	Kind      string            `json:"kind"`
	Tool      string            `json:"tool,omitempty"`
	Params    *Content          `json:"params,omitempty"`
	Sandbox   string            `json:"sandbox,omitempty"`
	Argv      *Content          `json:"argv,omitempty"` // joined by NUL bytes
	Code      *Content          `json:"code,omitempty"`
	Dir       string            `json:"dir,omitempty"`
	User      string            `json:"user,omitempty"`
	Env       []string          `json:"env,omitempty"`
	Secrets   []string          `json:"secrets,omitempty"`
	Policy    string            `json:"policy,omitempty"`
	PolicySHA string            `json:"policy_sha256,omitempty"`
	Isolation string            `json:"isolation,omitempty"`
	Network   string            `json:"network,omitempty"`
	Image     string            `json:"image,omitempty"`
	Mounts    []Mount           `json:"mounts,omitempty"`
	Limits    map[string]string `json:"limits,omitempty"`
	Labels    map[string]string `json:"labels,omitempty"`
	Overrides []string          `json:"overrides,omitempty"`
	Approval  *Approval         `json:"approval,omitempty"`
	// Of and Connection are those of a connection alone: the ID of the call whose
	// sandbox made it, and what it was.
	Of         string              `json:"of,omitempty"`
	Connection *sandbox.Connection `json:"connection,omitempty"`
}

// Ending is an Outcome as it is recorded.
type Ending struct {
	Status Status          `json:"status"`
	Result *sandbox.Result `json:"result,omitempty"`
	Stdout *Content        `json:"stdout,omitempty"`
	Stderr *Content        `json:"stderr,omitempty"`
	Error  string          `json:"error,omitempty"`
	// FilesOmitted is how many collected files are not in Result, which lists
	// 1024 at most, and none when their names are too long for one record.
	FilesOmitted int `json:"files_omitted,omitempty"`
}

// Bounds of what a caller, and through it an agent, can put into one record.
const (
	maxText        = 4 << 10
	maxItems       = 1024
	maxFiles       = 1024
	maxUncollected = 64 // each up to three texts: together below what a body may have
)

// call is in as it is recorded.
func (in *Intent) call() (Call, []*Capture) {
	c := Call{
		Actor: clean(in.Actor, maxText), Kind: clean(in.Kind, maxText), Tool: clean(in.Tool, maxText), Sandbox: clean(in.Sandbox, maxText),
		Dir: clean(in.Dir, maxText), User: clean(in.User, maxText), Policy: clean(in.Policy, maxText), PolicySHA: clean(in.PolicySHA, maxText),
		Isolation: clean(in.Isolation, maxText), Network: clean(in.Network, maxText), Image: clean(in.Image, maxText),
		Secrets: cleanAll(in.Secrets), Overrides: cleanAll(in.Overrides), Limits: LimitTexts(in.Limits),
	}
	if a := in.Approval; a != nil {
		c.Approval = &Approval{ID: clean(a.ID, maxText), Digest: clean(a.Digest, maxText), State: clean(a.State, maxText), Rules: cleanAll(a.Rules),
			Approver: clean(a.Approver, maxText), Channel: clean(a.Channel, maxText), Note: clean(a.Note, maxText)}
	}
	names := make([]string, len(in.Env))
	for i, e := range in.Env {
		names[i], _, _ = strings.Cut(e, "=")
	}
	c.Env = cleanAll(names)
	for _, m := range in.Mounts[:min(len(in.Mounts), maxItems)] {
		c.Mounts = append(c.Mounts, Mount{Name: clean(m.Name, maxText), Target: clean(m.Target, maxText), Access: clean(m.Access, maxText), Git: clean(m.Git, maxText)})
	}
	if len(in.Labels) > 0 {
		c.Labels = make(map[string]string, len(in.Labels))
		for k, v := range in.Labels {
			c.Labels[clean(k, maxText)] = clean(v, maxText)
		}
	}
	var kept []*Capture
	if len(in.Params) > 0 {
		args := Captured(in.Params)
		c.Params, kept = args.content(), append(kept, args)
	}
	if len(in.Argv) > 0 {
		argv := Captured([]byte(strings.Join(in.Argv, "\x00")))
		c.Argv, kept = argv.content(), append(kept, argv)
	}
	if len(in.Code) > 0 {
		code := Captured(in.Code)
		c.Code, kept = code.content(), append(kept, code)
	}
	return c, kept
}

// cleanUncollected is what a record says of files that did not come out. Names in it
// are the sandbox's.
func cleanUncollected(all []sandbox.Uncollected) []sandbox.Uncollected {
	var out []sandbox.Uncollected
	for _, u := range all[:min(len(all), maxUncollected)] {
		out = append(out, sandbox.Uncollected{Pattern: clean(u.Pattern, maxText), Reason: clean(u.Reason, maxText), Hint: clean(u.Hint, maxText)})
	}
	if n := len(all) - maxUncollected; n > 0 {
		out = append(out, sandbox.Uncollected{Reason: "… (" + strconv.Itoa(n) + " more)"})
	}
	return out
}

// ending is out as it is recorded.
func (out *Outcome) ending() (Ending, []*Capture) {
	e := Ending{Status: out.Status, Error: clean(out.Error, maxText)}
	stdout, stderr := out.Stdout, out.Stderr
	if out.Result != nil {
		r := *out.Result
		e.FilesOmitted = max(0, len(r.Files)-maxFiles)
		files := make([]sandbox.File, 0, min(len(r.Files), maxFiles))
		for _, f := range r.Files[:min(len(r.Files), maxFiles)] {
			f.Path, f.SavedAs = clean(f.Path, maxText), clean(f.SavedAs, maxText)
			files = append(files, f)
		}
		r.Files, r.Uncollected = files, cleanUncollected(r.Uncollected)
		r.Rule, r.Reason = clean(r.Rule, maxText), clean(r.Reason, maxText)
		r.Hint, r.Signal = clean(r.Hint, maxText), clean(r.Signal, maxText)
		if c := r.Changes; c != nil {
			short := *c
			short.Applied, short.Problem, short.Hint = cleanAll(c.Applied), clean(c.Problem, maxText), clean(c.Hint, maxText)
			r.Changes = &short
		}
		if stdout == nil && r.Stdout != nil {
			stdout = Captured(r.Stdout)
		}
		if stderr == nil && r.Stderr != nil {
			stderr = Captured(r.Stderr)
		}
		e.Result = &r
	}
	e.Stdout, e.Stderr = stdout.content(), stderr.content()
	return e, []*Capture{stdout, stderr}
}

func cleanAll(list []string) []string {
	var out []string
	for _, s := range list[:min(len(list), maxItems)] {
		out = append(out, clean(s, maxText))
	}
	if n := len(list) - maxItems; n > 0 {
		out = append(out, "… ("+strconv.Itoa(n)+" more)")
	}
	return out
}

// LimitTexts are the limits that are set: durations as Go writes them, bytes
// and counts as whole numbers.
func LimitTexts(l sandbox.Limits) map[string]string {
	m := map[string]string{}
	for name, d := range map[sandbox.LimitName]time.Duration{sandbox.LimitWall: l.Wall, sandbox.LimitCPUTime: l.CPUTime} {
		if d != 0 {
			m[string(name)] = d.String()
		}
	}
	for name, n := range map[sandbox.LimitName]int64{
		sandbox.LimitMemory: l.Memory, sandbox.LimitProcesses: int64(l.Processes), sandbox.LimitOpenFiles: int64(l.OpenFiles),
		sandbox.LimitFileSize: l.FileSize, sandbox.LimitDisk: l.Disk, sandbox.LimitInodes: l.Inodes, sandbox.LimitTmp: l.Tmp,
		sandbox.LimitIO: l.IO, sandbox.LimitIOPS: l.IOPS, sandbox.LimitOutput: l.Output,
	} {
		if n != 0 {
			m[string(name)] = strconv.FormatInt(n, 10)
		}
	}
	if l.CPUs != 0 {
		m[string(sandbox.LimitCPUs)] = strconv.FormatFloat(l.CPUs, 'g', -1, 64)
	}
	if len(m) == 0 {
		return nil
	}
	return m
}
