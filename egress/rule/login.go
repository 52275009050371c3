// SPDX-License-Identifier: Apache-2.0

package rule

import (
	"maps"
	"slices"
)

// Login is what an account's login at a model's provider is good for in a sandbox: where
// its access token goes, and for which requests. With such a token more can be had than
// answers of a model: a key that never expires, the account's other data.
type Login struct {
	Hosts []string
	// Requests are those that the hosts get from a sandbox with the login.
	Requests []Web
	// Elsewhere are hosts that a sandbox with the login does not reach: those that give
	// out tokens.
	Elsewhere []string
}

// logins are those that are known, by name. The requests are those that the agents make
// for answers of a model, and to learn which models there are.
var logins = map[string]Login{
	"claude": { // Claude Code
		Hosts: []string{"api.anthropic.com"},
		Requests: []Web{
			{Methods: []string{"POST"}, Paths: []string{"/v1/messages", "/v1/messages/count_tokens"}},
			{Methods: []string{"GET"}, Paths: []string{"/v1/models", "/v1/models/*"}},
		},
		Elsewhere: []string{"platform.claude.com", "console.anthropic.com", "claude.ai"},
	},
	"chatgpt": { // Codex
		Hosts: []string{"chatgpt.com"},
		Requests: []Web{
			{Methods: []string{"POST"}, Paths: []string{"/backend-api/codex/responses", "/backend-api/codex/responses/compact"}},
			{Methods: []string{"GET"}, Paths: []string{"/backend-api/codex/models", "/backend-api/wham/accounts/check"}},
		},
		Elsewhere: []string{"auth.openai.com"},
	},
	"google": { // Gemini CLI
		Hosts: []string{"cloudcode-pa.googleapis.com"},
		Requests: []Web{{Methods: []string{"POST"}, Paths: []string{
			"/v1internal:generateContent", "/v1internal:streamGenerateContent", "/v1internal:countTokens", "/v1internal:loadCodeAssist", "/v1internal:listExperiments",
		}}},
		Elsewhere: []string{"oauth2.googleapis.com", "accounts.google.com"},
	},
}

// LoginOf gives the login of a name.
func LoginOf(name string) (Login, bool) {
	l, ok := logins[name]
	return l, ok
}

// Logins are the names that there are.
func Logins() []string { return slices.Sorted(maps.Keys(logins)) }
