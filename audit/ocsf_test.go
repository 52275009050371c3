// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/caisson-run/caisson/sandbox"
)

// ocsfSchema is what testdata/ocsf.json has of the schema at
// github.com/ocsf/ocsf-schema: of our three classes, with the profile
// security_control, and of the objects in them the attributes, their types, which are
// required, their values, and of which there must be one.
type ocsfSchema struct {
	Classes map[string]ocsfShape `json:"classes"`
	Objects map[string]ocsfShape `json:"objects"`
	Types   map[string]string    `json:"types"`
}

type ocsfShape struct {
	Attributes map[string]struct {
		Type            string
		Array, Required bool
		Enum            []string
	} `json:"attributes"`
	Constraints map[string][]string `json:"constraints"`
}

// check says what is wrong with v, which is at a path.
func (s *ocsfSchema) check(at string, shape ocsfShape, v map[string]any) (wrong []string) {
	bad := func(name, format string, args ...any) {
		wrong = append(wrong, at+name+": "+fmt.Sprintf(format, args...))
	}
	for name, a := range shape.Attributes {
		if _, there := v[name]; a.Required && !there {
			bad(name, "it is required")
		}
	}
	if one := shape.Constraints["at_least_one"]; one != nil && !slices.ContainsFunc(one, func(name string) bool { return v[name] != nil }) {
		bad("", "it has none of %v", one)
	}
	for name, value := range v {
		a, ok := shape.Attributes[name]
		if !ok {
			bad(name, "the schema has none")
			continue
		}
		values := []any{value}
		if a.Array {
			if values, ok = value.([]any); !ok {
				bad(name, "it is no list")
			}
		}
		for _, value := range values {
			switch kind, scalar := s.Types[a.Type]; {
			case a.Type == "object": // of whatever
			case !scalar:
				o, ok := value.(map[string]any)
				if !ok {
					bad(name, "it is no object")
				} else if shape, known := s.Objects[a.Type]; !known {
					bad(name, "testdata has no object %s", a.Type)
				} else {
					wrong = append(wrong, s.check(at+name+".", shape, o)...)
				}
			case kind == "integer_t", kind == "long_t":
				n, ok := value.(float64)
				if !ok || n != math.Trunc(n) {
					bad(name, "%v is no whole number", value)
				} else if a.Enum != nil && !slices.Contains(a.Enum, strconv.Itoa(int(n))) && name != "type_uid" {
					bad(name, "%v is none of %v", n, a.Enum)
				}
			case kind == "string_t":
				if t, ok := value.(string); !ok || t == "" && name != "cmd_line" {
					bad(name, "%v is no text", value)
				}
			default:
				bad(name, "the test knows no type %s", a.Type)
			}
		}
	}
	return wrong
}

// ocsfProfiles are the profiles that bring an attribute: events/base_event.json,
// events/network/network.json and profiles/*.json of the schema's 1.8.0. Classes that
// have it by themselves are left out.
var ocsfProfiles = map[string]map[string]string{
	"network_activity": {"actor": "host", "device": "host", "action_id": "security_control", "disposition_id": "security_control", "firewall_rule": "security_control", "policy": "security_control"},
	"api_activity":     {"device": "host", "action_id": "security_control", "disposition_id": "security_control", "firewall_rule": "security_control", "policy": "security_control"},
	"process_activity": {"action_id": "security_control", "disposition_id": "security_control", "firewall_rule": "security_control", "policy": "security_control"},
}

// An event that has an attribute of a profile's says that it has the profile.
func checkProfiles(t *testing.T, class string, v map[string]any) {
	t.Helper()
	has, _ := v["metadata"].(map[string]any)["profiles"].([]any)
	for attribute, profile := range ocsfProfiles[class] {
		if v[attribute] != nil && !slices.Contains(has, any(profile)) {
			t.Errorf("%s %v: %s is of the profile %s, and the event has %v", class, v["message"], attribute, profile, has)
		}
	}
}

func TestOCSF(t *testing.T) {
	text, err := os.ReadFile("testdata/ocsf.json")
	must(t, err)
	var schema ocsfSchema
	must(t, json.Unmarshal(text, &schema))
	classes := map[float64]string{1007: "process_activity", 4001: "network_activity", 6003: "api_activity"}

	l := open(t, t.TempDir())
	call(t, l, "a")
	unfinished, err := l.Begin(ctx, Intent{Actor: "key:ci", Kind: "run_command", Argv: []string{"/bin/sleep", "9"}, Policy: "/p.yaml", PolicySHA: "ab", Sandbox: "i1"})
	must(t, err)
	must(t, l.Refuse(ctx, Intent{Kind: "run_code", Code: []byte("x")}, Outcome{Status: Refused, Error: "no",
		Result: &sandbox.Result{Status: sandbox.StatusDenied, Reason: "no", Rule: "/p.yaml:3"}}))
	must(t, l.Refuse(ctx, Intent{Actor: "key:ci", Kind: "run_command", Argv: []string{"=1+1", "\xff\x1b"}}, Outcome{Status: Failed, Error: "no level"}))
	killed, err := l.Begin(ctx, Intent{Kind: "run_command", Argv: []string{"python3", "-c", "1"}, Dir: "/w", Actor: "uid:0", Isolation: "gvisor"})
	must(t, err)
	must(t, killed.End(ctx, Outcome{Status: Allowed, Result: &sandbox.Result{Status: sandbox.StatusResourceExceeded, Signal: "SIGKILL", Resource: sandbox.LimitMemory, WallMS: 7}}))
	for _, kind := range []string{"call_tool", "start_sandbox", "end_sandbox", "pause_sandbox", "ask_approval", "answer_approval", "watch_sandbox", "list_files", ""} {
		e, err := l.Begin(ctx, Intent{Actor: "key:ci", Kind: kind, Tool: "t", Params: []byte(`{"a":1}`), Approval: &Approval{ID: "apr", State: "approved"}})
		must(t, err)
		must(t, e.End(ctx, Outcome{Status: Allowed}))
	}
	began := time.Now()
	must(t, l.Connections(ctx, []Connection{
		{Actor: "key:ci", Sandbox: "i1", Call: unfinished.ID, Status: Allowed, Connection: sandbox.Connection{Protocol: "tcp", Host: "example.com", Address: "192.0.2.1", Port: 443,
			Rule: "example.com", From: "p.yaml:2", Sent: 1, Received: 2, Started: began, DurationMS: 5}},
		{Status: Refused, Connection: sandbox.Connection{Protocol: "dns", Host: "evil.example", Count: 3, Reason: "not allowed", Method: "GET", Path: "/"}},
		{Status: Failed, Connection: sandbox.Connection{Protocol: "tcp", Address: "not an address"}},
		{Status: Failed, Connection: sandbox.Connection{}},
	}))
	var b bytes.Buffer
	must(t, l.Export(ctx, &b, OCSF, Filter{}))
	counts := map[string]int{}
	for d := json.NewDecoder(&b); d.More(); {
		var v map[string]any
		must(t, d.Decode(&v))
		name := classes[v["class_uid"].(float64)]
		counts[name]++
		for _, wrong := range schema.check("", schema.Classes[name], v) {
			t.Errorf("%s %v: %s", name, v["message"], wrong)
		}
		checkProfiles(t, name, v)
		if v["type_uid"].(float64) != v["class_uid"].(float64)*100+v["activity_id"].(float64) {
			t.Errorf("type_uid of %v", v)
		}
		switch v["message"] {
		case "python3 -c 1":
			if v["status"] != "resource_exceeded" || v["status_id"] != 2.0 || v["action_id"] != 1.0 || v["process"].(map[string]any)["name"] != "python3" {
				t.Errorf("%v", v)
			}
		case "tcp example.com":
			if v["activity_id"] != 2.0 || v["dst_endpoint"].(map[string]any)["ip"] != "192.0.2.1" || v["time"].(float64) != float64(began.Add(5*time.Millisecond).UnixMilli()) ||
				v["metadata"].(map[string]any)["correlation_uid"] != unfinished.ID {
				t.Errorf("%v", v)
			}
		case "dns evil.example":
			if v["activity_id"] != 5.0 || v["action_id"] != 2.0 || v["disposition_id"] != 2.0 || v["severity_id"] != 3.0 || v["count"] != 3.0 {
				t.Errorf("%v", v)
			}
		case "run_code":
			if v["action_id"] != 2.0 || v["unmapped"].(map[string]any)["rule"] != "/p.yaml:3" {
				t.Errorf("%v", v)
			}
		}
	}
	if counts["process_activity"] != 4 || counts["network_activity"] != 4 || counts["api_activity"] != 10 {
		t.Errorf("%v", counts)
	}
}
