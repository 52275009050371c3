// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"cmp"
	"context"
	"encoding/json"
	"io"
	"net/netip"
	"path"
	"strings"
	"time"

	"github.com/caisson-run/caisson/sandbox"
)

// ocsfVersion is the schema that events are written in: https://schema.ocsf.io.
const ocsfVersion = "1.8.0"

// A call that runs a program is Process Activity, a connection Network Activity, and
// everything else that is asked of caisson API Activity.
const (
	ocsfProcess = 1007
	ocsfNetwork = 4001
	ocsfAPI     = 6003
)

// ocsfEvent is an event of one of the three classes.
type ocsfEvent struct {
	Class    int    `json:"class_uid"`
	Category int    `json:"category_uid"`
	Activity int    `json:"activity_id"`
	Named    string `json:"activity_name,omitempty"`
	Type     int    `json:"type_uid"`
	Severity int    `json:"severity_id"`

	Time     int64  `json:"time"` // ms
	Start    int64  `json:"start_time,omitempty"`
	End      int64  `json:"end_time,omitempty"`
	Duration *int64 `json:"duration,omitempty"` // ms
	Count    int64  `json:"count,omitempty"`

	StatusID     int            `json:"status_id"`
	Status       string         `json:"status,omitempty"`
	StatusDetail string         `json:"status_detail,omitempty"`
	Action       int            `json:"action_id"`
	Disposition  int            `json:"disposition_id"`
	Message      string         `json:"message"`
	Metadata     ocsfMetadata   `json:"metadata"`
	Actor        *ocsfActor     `json:"actor,omitempty"`
	Policy       *ocsfName      `json:"policy,omitempty"`
	Rule         *ocsfName      `json:"firewall_rule,omitempty"`
	Device       *ocsfDevice    `json:"device,omitempty"`
	Process      *ocsfRun       `json:"process,omitempty"`
	ExitCode     *int           `json:"exit_code,omitempty"`
	API          *ocsfCall      `json:"api,omitempty"`
	Source       *ocsfEndpoint  `json:"src_endpoint,omitempty"`
	Destination  *ocsfEndpoint  `json:"dst_endpoint,omitempty"`
	Connection   *ocsfTransport `json:"connection_info,omitempty"`
	Traffic      *ocsfTraffic   `json:"traffic,omitempty"`
	Unmapped     map[string]any `json:"unmapped,omitempty"`
}

type ocsfMetadata struct {
	Version  string   `json:"version"`
	Product  ocsfName `json:"product"`
	Profiles []string `json:"profiles"`
	UID      string   `json:"uid"`
	// Correlation is the call that a connection belongs to.
	Correlation string `json:"correlation_uid,omitempty"`
	Sequence    int64  `json:"sequence"`
	LogName     string `json:"log_name"`
}

type ocsfName struct {
	Name    string `json:"name,omitempty"`
	UID     string `json:"uid,omitempty"`
	Vendor  string `json:"vendor_name,omitempty"`
	Version string `json:"version,omitempty"`
}

type ocsfActor struct {
	User ocsfName `json:"user"`
}

type ocsfDevice struct {
	TypeID int    `json:"type_id"`
	Type   string `json:"type"`
	UID    string `json:"uid,omitempty"`
	Name   string `json:"name,omitempty"`
}

type ocsfRun struct {
	UID  string `json:"uid"`
	Name string `json:"name,omitempty"`
	Line string `json:"cmd_line"`
	Dir  string `json:"working_directory,omitempty"`
}

type ocsfCall struct {
	Operation string       `json:"operation"`
	Service   ocsfName     `json:"service"`
	Request   ocsfRequest  `json:"request"`
	Response  *ocsfMessage `json:"response,omitempty"`
}

type ocsfRequest struct {
	UID string `json:"uid"`
}

type ocsfMessage struct {
	Message string `json:"message,omitempty"`
	Error   string `json:"error_message,omitempty"`
}

type ocsfEndpoint struct {
	UID      string `json:"uid,omitempty"`
	Name     string `json:"name,omitempty"`
	Hostname string `json:"hostname,omitempty"`
	IP       string `json:"ip,omitempty"`
	Port     int    `json:"port,omitempty"`
}

type ocsfTransport struct {
	Direction int    `json:"direction_id"`
	Protocol  string `json:"protocol_name,omitempty"`
}

type ocsfTraffic struct {
	Out int64 `json:"bytes_out"`
	In  int64 `json:"bytes_in"`
}

// exportOCSF writes one event a line for each call and connection. Those that
// retention has pruned say nothing, and are left out.
func (l *Log) exportOCSF(ctx context.Context, w io.Writer, f Filter) error {
	e := json.NewEncoder(w)
	for r, err := range l.Query(ctx, f) {
		if err != nil {
			return err
		}
		if r.Call == nil {
			continue
		}
		if err := e.Encode(ocsf(&r)); err != nil {
			return err
		}
	}
	return nil
}

// ocsf is a record as an event.
func ocsf(r *Record) *ocsfEvent {
	c := r.Call
	v := &ocsfEvent{
		Time: r.Time.UnixMilli(), Start: r.Time.UnixMilli(), Severity: 1,
		Metadata: ocsfMetadata{Version: ocsfVersion, Product: ocsfName{Name: "caisson", Vendor: "caisson"}, Profiles: []string{"host", "security_control"},
			UID: r.ID, Correlation: c.Of, Sequence: r.Seq, LogName: dbFile},
		Actor: &ocsfActor{User: ocsfName{Name: cmp.Or(c.Actor, "unknown")}}, Unmapped: map[string]any{},
	}
	if r.Ended != nil {
		v.End = r.Ended.UnixMilli()
	}
	if c.Policy != "" || c.PolicySHA != "" {
		v.Policy = &ocsfName{Name: c.Policy, UID: c.PolicySHA}
	}
	v.outcome(r)
	switch {
	case c.Connection != nil:
		v.connection(c)
	case c.Kind == "run_command" || c.Kind == "run_code":
		v.program(r)
	default:
		v.call(r)
	}
	v.Type = v.Class*100 + v.Activity
	v.rest(r)
	return v
}

// outcome is what became of it. A person should look at a refusal.
func (v *ocsfEvent) outcome(r *Record) {
	v.Status = string(r.Status)
	switch r.Status {
	case Allowed:
		v.StatusID, v.Action, v.Disposition = 1, 1, 1
	case Refused:
		v.StatusID, v.Action, v.Disposition, v.Severity = 2, 2, 2, 3
	case Failed:
		v.StatusID, v.Action, v.Disposition, v.Severity = 2, 1, 27, 2
	default: // it still runs, or its process died first
		v.StatusID, v.Action, v.Disposition = 0, 1, 1
	}
	if r.Ending == nil {
		return
	}
	v.StatusDetail = r.Ending.Error
	if res := r.Ending.Result; res != nil {
		v.StatusDetail = cmp.Or(v.StatusDetail, res.Reason)
		wall := res.WallMS
		v.Duration = &wall
		if res.Status != sandbox.StatusSuccess && r.Status == Allowed {
			v.Status, v.StatusID = string(res.Status), 2
		}
		if res.Resource != "" {
			v.Severity = max(v.Severity, 2)
		}
	}
}

// program is a call that ran one, or would have.
func (v *ocsfEvent) program(r *Record) {
	c := r.Call
	v.Class, v.Category, v.Activity = ocsfProcess, 1, 1
	v.Device = &ocsfDevice{TypeID: 99, Type: "Sandbox", UID: c.Sandbox, Name: cmp.Or(c.Sandbox, "none")}
	v.Process = &ocsfRun{UID: r.ID, Line: strings.Join(r.Command, " "), Dir: c.Dir}
	if r.Ending != nil && r.Ending.Result != nil {
		v.ExitCode = r.Ending.Result.ExitCode
	}
	if len(r.Command) > 0 {
		v.Process.Name = path.Base(r.Command[0])
		v.Unmapped["argv"] = r.Command
	}
	v.Message = cmp.Or(v.Process.Line, c.Kind)
}

// call is anything else that was asked for.
func (v *ocsfEvent) call(r *Record) {
	c := r.Call
	v.Class, v.Category = ocsfAPI, 6
	verb, _, _ := strings.Cut(c.Kind, "_")
	switch verb {
	case "start", "create", "fork", "snapshot":
		v.Activity = 1
	case "read", "list", "download":
		v.Activity = 2
	case "pause", "resume", "write", "upload", "answer":
		v.Activity = 3
	case "end", "kill", "delete":
		v.Activity = 4
	default:
		v.Activity, v.Named = 99, c.Kind
	}
	v.API = &ocsfCall{Operation: cmp.Or(c.Tool, c.Kind, "unknown"), Service: ocsfName{Name: "caisson"}, Request: ocsfRequest{UID: r.ID}}
	if r.Ending != nil {
		v.API.Response = &ocsfMessage{Message: v.Status, Error: r.Ending.Error}
	}
	v.Source = &ocsfEndpoint{Name: cmp.Or(c.Sandbox, "caisson"), UID: c.Sandbox}
	v.Message = c.Kind
	if c.Tool != "" {
		v.Message += " " + c.Tool
	}
	if len(r.Command) > 0 {
		v.Unmapped["argv"] = r.Command
	}
}

// connection is one that a sandbox made, or tried to.
func (v *ocsfEvent) connection(c *Call) {
	n := c.Connection
	v.Class, v.Category = ocsfNetwork, 4
	switch v.Disposition {
	case 2:
		v.Activity = 5
	case 27:
		v.Activity = 4
	default: // its record is made when it has ended
		v.Activity = 2
	}
	v.Source = &ocsfEndpoint{Name: cmp.Or(c.Sandbox, "sandbox"), UID: c.Sandbox}
	v.Destination = &ocsfEndpoint{Hostname: n.Host, Port: n.Port}
	if a, err := netip.ParseAddr(n.Address); err == nil {
		v.Destination.IP = a.String()
	}
	if v.Destination.Hostname == "" && v.Destination.IP == "" {
		v.Destination.Name = cmp.Or(n.Address, "unknown")
	}
	v.Connection = &ocsfTransport{Direction: 2, Protocol: n.Protocol}
	v.Traffic = &ocsfTraffic{Out: n.Sent, In: n.Received}
	v.Count, v.StatusDetail = n.Count, n.Reason
	wall := n.DurationMS
	v.Duration = &wall
	if !n.Started.IsZero() {
		v.Start, v.Time = n.Started.UnixMilli(), n.Started.Add(time.Duration(n.DurationMS)*time.Millisecond).UnixMilli()
	}
	if n.Rule != "" || n.From != "" {
		v.Rule = &ocsfName{Name: n.Rule, UID: n.From}
	}
	v.Message = n.Protocol + " " + cmp.Or(n.Host, n.Address)
	if n.Method != "" {
		v.Unmapped["http"] = map[string]any{"method": n.Method, "path": n.Path}
	}
}

// rest is what the schema has no place for.
func (v *ocsfEvent) rest(r *Record) {
	c := r.Call
	put := func(name string, value any, is bool) {
		if is {
			v.Unmapped[name] = value
		}
	}
	put("digest", r.Digest, r.Digest != "")
	put("end_digest", r.EndDigest, r.EndDigest != "")
	put("kind", c.Kind, true)
	put("tool", c.Tool, c.Tool != "")
	put("sandbox", c.Sandbox, c.Sandbox != "")
	put("user", c.User, c.User != "")
	put("isolation", c.Isolation, c.Isolation != "")
	put("network", c.Network, c.Network != "")
	put("image", c.Image, c.Image != "")
	put("env", c.Env, len(c.Env) > 0)
	put("secrets", c.Secrets, len(c.Secrets) > 0)
	put("mounts", c.Mounts, len(c.Mounts) > 0)
	put("limits", c.Limits, len(c.Limits) > 0)
	put("labels", c.Labels, len(c.Labels) > 0)
	put("overrides", c.Overrides, len(c.Overrides) > 0)
	put("approval", c.Approval, c.Approval != nil)
	for name, content := range map[string]*Content{"params": c.Params, "code": c.Code} {
		put(name, content, content != nil)
	}
	if r.Ending == nil {
		return
	}
	for name, content := range map[string]*Content{"stdout": r.Ending.Stdout, "stderr": r.Ending.Stderr} {
		put(name, content, content != nil)
	}
	if res := r.Ending.Result; res != nil {
		put("rule", res.Rule, res.Rule != "")
		put("signal", res.Signal, res.Signal != "")
		put("resource", res.Resource, res.Resource != "")
		put("limits_hit", res.LimitsHit, len(res.LimitsHit) > 0)
	}
}
