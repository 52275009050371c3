// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"slices"
	"strings"

	"github.com/caisson-run/caisson/audit"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
	"github.com/caisson-run/caisson/session/question"
)

// auditKinds are the kinds of call that records have; TestAuditKinds looks for those that
// are not here.
func auditKinds() []string {
	return []string{
		string(policy.RunCommand), string(policy.RunCode), string(policy.CallTool), string(policy.CallHTTP), audit.KindConnection,
		string(policy.StartSandbox), "pause_sandbox", "cool_sandbox", "snapshot_sandbox", "fork_sandbox", "adopt_sandbox", "change_network", "watch_sandbox", "end_sandbox",
		string(policy.ReadFile), string(policy.WriteFile), string(policy.RemoveFile), string(policy.MoveFile), string(policy.MakeDirectory),
		session.KindKeepChanges, session.KindApplyChanges, session.KindDropChanges, session.KindBranchChanges, session.KindRemoveVolume,
		session.KindReadCode, session.KindBuildTemplate, question.KindAsk, question.KindAnswer,
		"read_resource", "subscribe_resource", "get_prompt", "complete", // of MCP servers
	}
}

// oneOf refuses a word that is none of those that there are: a filter that no call can
// get through would look like a record without such calls. Empty is no filter.
func oneOf(flag, word string, words ...string) error {
	if word == "" || slices.Contains(words, word) {
		return nil
	}
	hint, least := "known are "+strings.Join(words, ", "), 3
	for _, w := range words {
		if n := policy.Distance(strings.ToLower(word), w); n < least && n < len(w)/2 {
			hint, least = "did you mean "+w+"?", n
		}
	}
	return &sandbox.Error{Op: "--" + flag + " " + sandbox.Quoted(word), Kind: sandbox.ErrInvalid, Problem: "there is no such " + flag, Hint: hint}
}
