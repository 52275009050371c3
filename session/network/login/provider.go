// SPDX-License-Identifier: Apache-2.0

package login

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"time"
)

// document is a login's file. What is not known here stays in it as it is.
type document map[string]json.RawMessage

var errShape = errors.New("its file does not have the shape that its agent writes")

func parse(b []byte) (document, error) {
	var d document
	if json.Unmarshal(b, &d) != nil || d == nil {
		return nil, errShape
	}
	return d, nil
}

func (d document) bytes() ([]byte, error) { return marshal(d) }

func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err := e.Encode(v)
	return b.Bytes(), err
}

// get reads a member; one that is not there stays what v is.
func (d document) get(key string, v any) error {
	if raw, ok := d[key]; ok && json.Unmarshal(raw, v) != nil {
		return errShape
	}
	return nil
}

func (d document) set(key string, v any) error {
	b, err := json.Marshal(v)
	d[key] = b
	return err
}

// within changes a member that is an object.
func (d document) within(key string, change func(document) error) error {
	in := document{}
	if err := d.get(key, &in); err != nil {
		return err
	}
	if err := change(in); err != nil {
		return err
	}
	return d.set(key, in)
}

// far is an end that no run sees: 2100.
var far = time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)

// worthless is what stands for a refresh token inside.
const worthless = "caisson-keeps-the-refresh-token"

// providers are those whose logins are known, by the names of rule.Logins. Where agents
// keep them, their endpoints and public client ids are those of the npm packages
// @anthropic-ai/claude-code 2.1.332, @openai/codex 0.171.0 and @google/gemini-cli 0.61.0.
func providers() map[string]*provider {
	return map[string]*provider{
		"claude": {
			file: ".claude/.credentials.json", variable: "CLAUDE_CONFIG_DIR", home: ".claude", program: "claude",
			endpoint: "https://platform.claude.com/v1/oauth/token", clientID: "9d1c250a-e61b-44d9-88ed-5944d1962f5e",
			read: readClaude, write: writeClaude, inside: insideClaude,
			request: func(s state, id string) any {
				return map[string]string{"grant_type": "refresh_token", "refresh_token": s.refresh, "client_id": id, "scope": strings.Join(s.scopes, " ")}
			},
		},
		"chatgpt": {
			file: ".codex/auth.json", variable: "CODEX_HOME", home: ".codex", program: "codex",
			endpoint: "https://auth.openai.com/oauth/token", clientID: "app_EMoamEEZ73f0CkXaXp7hrann",
			read: readChatGPT, write: writeChatGPT, inside: insideChatGPT,
			request: func(s state, id string) any {
				return map[string]string{"grant_type": "refresh_token", "refresh_token": s.refresh, "client_id": id}
			},
		},
		// Its provider wants a secret of the agent's beside the refresh token, which is not
		// caisson's to have: who runs the agent renews it.
		"google": {
			file: ".gemini/oauth_creds.json", home: ".gemini", program: "gemini", read: readGoogle,
			env: func(p string) map[string]string {
				return map[string]string{"GOOGLE_GENAI_USE_GCA": "true", "GOOGLE_CLOUD_ACCESS_TOKEN": p}
			},
		},
	}
}

const claudeKey = "claudeAiOauth"

// claudeLogin is what is known of Claude Code's.
type claudeLogin struct {
	AccessToken   string   `json:"accessToken"`
	RefreshToken  string   `json:"refreshToken"`
	ExpiresAt     int64    `json:"expiresAt"` // milliseconds
	Scopes        []string `json:"scopes"`
	Subscription  *string  `json:"subscriptionType,omitempty"`
	RateLimitTier *string  `json:"rateLimitTier,omitempty"`
}

func readClaude(d document) (state, error) {
	var c claudeLogin
	if err := d.get(claudeKey, &c); err != nil {
		return state{}, err
	}
	if c.AccessToken == "" {
		return state{}, ErrAbsent // it has logins of other servers alone
	}
	return state{access: c.AccessToken, refresh: c.RefreshToken, expires: milliseconds(c.ExpiresAt), scopes: c.Scopes}, nil
}

func milliseconds(n int64) time.Time {
	if n <= 0 {
		return time.Time{}
	}
	return time.UnixMilli(n)
}

func writeClaude(d document, a *answer, now time.Time) error {
	return d.within(claudeKey, func(c document) error {
		err := errors.Join(c.set("accessToken", a.Access), c.set("expiresAt", a.expires(now).UnixMilli()))
		if a.Refresh != "" {
			err = errors.Join(err, c.set("refreshToken", a.Refresh))
		}
		if a.Scope != "" {
			err = errors.Join(err, c.set("scopes", strings.Fields(a.Scope)))
		}
		return err
	})
}

func insideClaude(d document, placeholder string, _ time.Time) (any, error) {
	var c claudeLogin
	if err := d.get(claudeKey, &c); err != nil {
		return nil, err
	}
	c.AccessToken, c.RefreshToken, c.ExpiresAt = placeholder, worthless, far.UnixMilli()
	return map[string]claudeLogin{claudeKey: c}, nil
}

const chatGPTKey = "tokens"

// chatGPTLogin is what is known of Codex'.
type chatGPTLogin struct {
	IDToken      string `json:"id_token"`
	AccessToken  string `json:"access_token"`
	RefreshToken string `json:"refresh_token"`
	AccountID    string `json:"account_id,omitempty"`
}

func readChatGPT(d document) (state, error) {
	var c *chatGPTLogin
	if err := d.get(chatGPTKey, &c); err != nil {
		return state{}, err
	}
	if c == nil || c.AccessToken == "" {
		return state{}, ErrAbsent // it has a key of the API's
	}
	var claims struct {
		Exp int64 `json:"exp"`
	}
	s := state{access: c.AccessToken, refresh: c.RefreshToken}
	if readClaims(c.AccessToken, &claims) == nil && claims.Exp > 0 {
		s.expires = time.Unix(claims.Exp, 0)
	}
	return s, nil
}

func writeChatGPT(d document, a *answer, now time.Time) error {
	err := d.within(chatGPTKey, func(c document) (err error) {
		for key, v := range map[string]string{"access_token": a.Access, "refresh_token": a.Refresh, "id_token": a.ID} {
			if v != "" {
				err = errors.Join(err, c.set(key, v))
			}
		}
		return err
	})
	return errors.Join(err, d.set("last_refresh", now.UTC().Format(time.RFC3339Nano)))
}

// authClaim is where an id token of OpenAI's has what Codex wants to know of the account.
const authClaim = "https://api.openai.com/auth"

// insideChatGPT has an id token without a signature: Codex reads its claims and does
// not look at the signature. Of the claims it has the account's plan and number, without
// which Codex asks for nothing.
func insideChatGPT(d document, placeholder string, _ time.Time) (any, error) {
	var c chatGPTLogin
	if err := d.get(chatGPTKey, &c); err != nil {
		return nil, err
	}
	var claims struct {
		Auth struct {
			Plan    string `json:"chatgpt_plan_type,omitempty"`
			Account string `json:"chatgpt_account_id,omitempty"`
		} `json:"https://api.openai.com/auth"`
	}
	_ = readClaims(c.IDToken, &claims) // without one it has none
	token, err := unsigned(map[string]any{"exp": far.Unix(), authClaim: claims.Auth})
	if err != nil {
		return nil, err
	}
	mode := "chatgpt"
	if err := d.get("auth_mode", &mode); err != nil {
		return nil, err
	}
	return map[string]any{
		"auth_mode": mode, "OPENAI_API_KEY": nil, "last_refresh": far.Format(time.RFC3339),
		chatGPTKey: chatGPTLogin{IDToken: token, AccessToken: placeholder, RefreshToken: worthless, AccountID: c.AccountID},
	}, nil
}

// readClaims reads the claims of a JWT, which is believed as far as its file is.
func readClaims(token string, v any) error {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return errShape
	}
	b, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return errShape
	}
	return json.Unmarshal(b, v)
}

// unsigned is a JWT with a signature that is none.
func unsigned(claims any) (string, error) {
	b, err := json.Marshal(claims)
	e := base64.RawURLEncoding.EncodeToString
	return e([]byte(`{"alg":"none","typ":"JWT"}`)) + "." + e(b) + "." + e([]byte("caisson")), err
}

func readGoogle(d document) (state, error) {
	var access, refresh string
	var expires int64
	if err := errors.Join(d.get("access_token", &access), d.get("refresh_token", &refresh), d.get("expiry_date", &expires)); err != nil {
		return state{}, errShape
	}
	if access == "" {
		return state{}, ErrAbsent
	}
	return state{access: access, refresh: refresh, expires: milliseconds(expires)}, nil
}
