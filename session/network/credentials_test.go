// SPDX-License-Identifier: Apache-2.0

package network

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
)

// A secret that is absent is an error, unless it may be: then there is no placeholder.
func TestOptionalSecrets(t *testing.T) {
	for _, from := range []string{"env:KEY", "file:" + filepath.Join(t.TempDir(), "key"), "login:claude", "login:chatgpt"} {
		for _, optional := range []bool{false, true} {
			c := &Credentials{Lookup: func(string) (string, bool) { return "", false }}
			plan := &policy.PlanNetwork{Secrets: []policy.PlanSecret{{Name: "S", From: from, Optional: optional}}}
			rules, err := c.Rules(plan)
			if optional && (err != nil || len(rules.Secrets) != 0) || !optional && !errors.Is(err, sandbox.ErrUnavailable) {
				t.Errorf("%s, optional %v: %v, %v", from, optional, rules.Secrets, err)
			}
			if _, ok := c.Placeholders["S"]; ok {
				t.Errorf("%s, optional %v: it has a placeholder", from, optional)
			}
			if err := c.Foresee(plan); err != nil || optional == (c.Placeholders["S"] != "") {
				t.Errorf("%s, optional %v: foreseen is %v, %v", from, optional, c.Placeholders, err)
			}
		}
	}
	// What is there and cannot be read is an error in any case.
	c := &Credentials{}
	if _, err := c.Rules(&policy.PlanNetwork{Secrets: []policy.PlanSecret{{Name: "S", From: "file:" + t.TempDir(), Optional: true}}}); err == nil {
		t.Error("a directory is taken for nothing")
	}
}

// A host is closed whose secrets are all absent; one that another secret goes to is not.
func TestAbsentCloses(t *testing.T) {
	c := &Credentials{StateDir: t.TempDir(), Lookup: func(name string) (string, bool) { return "value", name == "HAVE" }}
	secret := func(name, from string, others bool, hosts ...string) policy.PlanSecret {
		return policy.PlanSecret{Name: name, From: "env:" + from, Hosts: hosts, Optional: true, Others: others}
	}
	rules, err := c.Rules(&policy.PlanNetwork{Secrets: []policy.PlanSecret{
		secret("A", "NONE", false, "a.example.com", "both.example.com"), secret("B", "HAVE", false, "both.example.com"), secret("C", "NONE", true, "open.example.com"),
	}})
	if err != nil || len(rules.Deny) != 1 || rules.Deny[0].Text != "a.example.com" {
		t.Errorf("%v is closed: %v", rules.Deny, err)
	}
}
