// SPDX-License-Identifier: Apache-2.0

package e2b

import (
	"context"
	"net/http"
	"time"

	"github.com/caisson-run/caisson/api"
	"github.com/caisson-run/caisson/session/persistent"
	"github.com/caisson-run/caisson/session/registry"
)

// envdVersion is the version of E2B's agent whose behaviour ours has. Clients
// switch features on by it; those they have from 0.6.4 on are all there.
const envdVersion = "0.6.13"

const (
	// defaultTimeout is how long a sandbox lives when its maker does not say.
	defaultTimeout = 300 * time.Second
	maxTimeout     = 30 * 24 * time.Hour
	// clientID is what older clients append to a sandbox's id; one server has
	// one.
	clientID = "caisson"
)

// control serves the paths of the control plane. Where E2B has a version 2 of
// a path, both are served.
func (s *Server) control() http.Handler {
	mux := http.NewServeMux()
	both := func(method, path string, h keyed) {
		mux.Handle(method+" "+path, s.keyed(h))
		mux.Handle(method+" /v2"+path, s.keyed(h))
	}
	both("POST", "/sandboxes", s.create)
	both("POST", "/sandboxes/{id}/connect", s.connect)
	mux.Handle("GET /sandboxes", s.keyed(s.listV1))
	mux.Handle("GET /v2/sandboxes", s.keyed(s.listV2))
	mux.Handle("GET /sandboxes/{id}/logs", s.keyed(s.logs))
	mux.Handle("GET /v2/sandboxes/{id}/logs", s.keyed(s.logsV2))
	both("GET", "/templates", s.listTemplates)
	for pattern, h := range map[string]keyed{
		"GET /sandboxes/metrics":         s.metricsOfMany,
		"GET /sandboxes/{id}":            s.get,
		"DELETE /sandboxes/{id}":         s.kill,
		"POST /sandboxes/{id}/timeout":   s.setTimeout,
		"POST /sandboxes/{id}/refreshes": s.refresh,
		"POST /sandboxes/{id}/resume":    s.resume,
		"POST /sandboxes/{id}/pause":     s.pause,
		"POST /sandboxes/{id}/snapshots": s.snapshot,
		"POST /sandboxes/{id}/fork":      s.fork,
		"PUT /sandboxes/{id}/network":    s.setNetwork,
		"GET /snapshots":                 s.listSnapshots,
		"GET /templates/{id}":            s.getTemplate,
		"GET /templates/aliases/{alias}": s.templateAlias,
		"DELETE /templates/{id}":         s.deleteTemplate,
		"POST /v3/templates":             s.newBuild,
		"POST /v2/templates":             s.newBuild,
		"PATCH /templates/{id}":          s.changeTemplate,
		"PATCH /v2/templates/{id}":       s.changeTemplate,
		"POST /templates/tags":           s.tagTemplate,
		"DELETE /templates/tags":         s.untagTemplate,
		"GET /templates/{id}/{part}":     s.templatePart,

		"GET /templates/{id}/files/{hash}":          s.fileLink,
		"POST /v2/templates/{id}/builds/{build}":    s.startBuild,
		"GET /templates/{id}/builds/{build}/status": s.buildStatus,
		"GET /templates/{id}/builds/{build}/logs":   s.buildLogs,
		"GET /sandboxes/{id}/metrics":               s.metrics,
	} {
		mux.Handle(pattern, s.keyed(h))
	}
	for pattern, what := range notServed {
		mux.Handle(pattern, s.keyed(func(http.ResponseWriter, *http.Request, *persistent.Key) error {
			return &apiError{http.StatusNotImplemented, what + " by this server; see docs/e2b.md"}
		}))
	}
	mux.HandleFunc("PUT "+uploadPath+"{token}", s.upload)
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	mux.Handle("/", s.o.Rest)
	return mux
}

// notBuilt is why the calls of older clients that send an image of their own are not served.
const notBuilt = "an image that a client has built is not taken; templates are built here, by steps (POST /v3/templates),"

// notServed are calls of E2B's clients that are refused by their name: a 404 would
// mean to them that it is the volume, or the secret, that is not there.
var notServed = map[string]string{
	"/volumes":                            "volumes are not kept",
	"/volumes/":                           "volumes are not kept",
	"/secrets":                            "secrets are the operator's, and not kept for clients",
	"/secrets/":                           "secrets are the operator's, and not kept for clients",
	"POST /templates":                     notBuilt,
	"POST /templates/{id}":                notBuilt,
	"POST /templates/{id}/builds/{build}": notBuilt,
}

// keyed is a call whose key was found.
type keyed func(w http.ResponseWriter, r *http.Request, k *persistent.Key) error

func (s *Server) keyed(h keyed) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		k, err := s.key(r)
		var held *api.Held
		if err == nil {
			held, err = s.o.Memory.Hold(k.ID)
		}
		if err == nil {
			defer held.Done()
			r.Body = held.Body(r.Body)
			err = h(w, r, k)
		}
		if err != nil {
			writeAPIError(w, err)
		}
	})
}

// key finds whose request it is.
func (s *Server) key(r *http.Request) (*persistent.Key, error) {
	token := api.Token(r.Header)
	if token == "" {
		return nil, &apiError{http.StatusUnauthorized, "the request has no key; set E2B_API_KEY to one that caisson keys create made"}
	}
	k, err := s.o.Keys.Authenticate(r.Context(), token)
	if err != nil {
		return nil, unauthorized(err)
	}
	return k, nil
}

// createBody is a request for a sandbox, of version 1 or 2.
type createBody struct {
	TemplateID      string            `json:"templateID"`
	Timeout         *int64            `json:"timeout"` // seconds
	Metadata        map[string]string `json:"metadata"`
	EnvVars         map[string]string `json:"envVars"`
	AutoPause       bool              `json:"autoPause"`
	AutoPauseMemory *bool             `json:"autoPauseMemory"`
	AutoResume      *struct {
		Enabled bool `json:"enabled"`
	} `json:"autoResume"`
	Internet *bool        `json:"allow_internet_access"`
	Network  *networkBody `json:"network"`
	Secure   *bool        `json:"secure"` // every sandbox is
}

// sandboxAnswer is what a client needs to talk to a sandbox.
type sandboxAnswer struct {
	SandboxID          string  `json:"sandboxID"`
	TemplateID         string  `json:"templateID"`
	ClientID           string  `json:"clientID"`
	EnvdVersion        string  `json:"envdVersion"`
	EnvdAccessToken    string  `json:"envdAccessToken"`
	TrafficAccessToken *string `json:"trafficAccessToken"`
	Domain             string  `json:"domain"`
}

func (s *Server) answer(b *persistent.Sandbox) sandboxAnswer {
	a := sandboxAnswer{
		SandboxID: b.ID, TemplateID: b.Template, ClientID: clientID, EnvdVersion: envdVersion,
		EnvdAccessToken: s.o.Sandboxes.Token(b, accessPurpose), Domain: s.o.Domain,
	}
	if private(b) {
		t := s.o.Sandboxes.Token(b, trafficPurpose)
		a.TrafficAccessToken = &t
	}
	return a
}

func (s *Server) create(w http.ResponseWriter, r *http.Request, k *persistent.Key) error {
	var q createBody
	if err := readBody(w, r, &q, false); err != nil {
		return err
	}
	wish, err := q.wish()
	if err != nil {
		return err
	}
	b, err := s.o.Sandboxes.Create(r.Context(), k, *wish)
	if err != nil {
		return err
	}
	return s.answerMade(w, r, s.answer(b), b)
}

// answerMade answers with sandboxes that were made. Where the client does not take the
// answer they are ended. They would run until their time is over and count for the key's
// quota, and no client would know of them.
func (s *Server) answerMade(w http.ResponseWriter, r *http.Request, answer any, made ...*persistent.Sandbox) error {
	gone := context.Cause(r.Context())
	if gone == nil {
		writeJSON(w, http.StatusCreated, answer)
		if api.Taken(w) {
			return nil
		}
	}
	for _, b := range made {
		_ = s.o.Sandboxes.Withdraw(r.Context(), b.ID) // else its time ends it
	}
	return gone
}

// wish is what the request asks of the road.
func (q *createBody) wish() (*persistent.Create, error) {
	if q.TemplateID == "" {
		return nil, &apiError{http.StatusBadRequest, "templateID is missing"}
	}
	life, err := lifetime(q.Timeout, defaultTimeout)
	if err != nil {
		return nil, err
	}
	n := networkBody{}
	if q.Network != nil {
		n = *q.Network
	}
	if n.Internet != nil {
		return nil, notCarried("network.allow_internet_access")
	}
	if n.MaskRequestHost != "" && !validMask(n.MaskRequestHost) {
		return nil, &apiError{http.StatusBadRequest, "maskRequestHost is no host name"}
	}
	n.Internet = q.Internet
	network, err := n.wish()
	if err != nil {
		return nil, err
	}
	c := &persistent.Create{
		Frontend: "e2b", Template: q.TemplateID, Metadata: q.Metadata, Env: q.EnvVars,
		Lifetime: persistent.Lifetime{Timeout: life, AutoResume: q.AutoResume != nil && q.AutoResume.Enabled},
		Network:  network, Notes: map[string]string{},
	}
	if id, ok := snapshotID(q.TemplateID); ok {
		c.Template, c.Snapshot = "", id
	}
	if q.AutoPause {
		c.OnTimeout = registry.Pause
		if isFalse(q.AutoPauseMemory) {
			c.OnTimeout = registry.PauseFiles
		}
	}
	switch public := n.AllowPublicTraffic; { // unsaid is as it was in a snapshot
	case public == nil:
	case *public:
		c.Notes[notePrivate] = ""
	default:
		c.Notes[notePrivate] = "yes"
	}
	if n.MaskRequestHost != "" {
		c.Notes[noteMask] = n.MaskRequestHost
	}
	return c, nil
}

// lifetime reads a timeout in seconds.
func lifetime(seconds *int64, unset time.Duration) (time.Duration, error) {
	if seconds == nil {
		return unset, nil
	}
	if n := *seconds; n < 0 || n > int64(maxTimeout/time.Second) {
		return 0, &apiError{http.StatusBadRequest, "a timeout lies between 0 and 2592000 seconds (30 days)"}
	}
	return time.Duration(*seconds) * time.Second, nil
}

type timeoutBody struct {
	Timeout *int64 `json:"timeout"`
	Memory  *bool  `json:"memory"`
}

// connect gives what a client needs for a sandbox that is there, resumes it if
// it is paused, and lets it live for at least as long as is asked.
func (s *Server) connect(w http.ResponseWriter, r *http.Request, k *persistent.Key) error {
	var q timeoutBody
	if err := readBody(w, r, &q, true); err != nil {
		return err
	}
	if err := s.mayForget(r, k, q.Memory); err != nil {
		return err
	}
	life, err := lifetime(q.Timeout, defaultTimeout)
	if err != nil {
		return err
	}
	b, resumed, err := s.o.Sandboxes.Handle(k, pathID(r)).Connect(r.Context(), life)
	if err != nil {
		return err
	}
	status := http.StatusOK
	if resumed {
		status = http.StatusCreated
	}
	writeJSON(w, status, s.answer(b))
	return nil
}

func isFalse(b *bool) bool { return b != nil && !*b }

// mayForget refuses to resume a sandbox without the memory that was kept of it: that
// has its files in it.
func (s *Server) mayForget(r *http.Request, k *persistent.Key, memory *bool) error {
	if !isFalse(memory) {
		return nil
	}
	b, err := s.o.Sandboxes.Handle(k, pathID(r)).Get(r.Context())
	if err == nil && b.State == registry.Paused && !b.Boots {
		err = notCarried("memory: false for a sandbox that was paused with its memory")
	}
	return err
}

// resume is what older clients call instead of connect; it refuses a sandbox
// that runs.
func (s *Server) resume(w http.ResponseWriter, r *http.Request, k *persistent.Key) error {
	var q struct {
		Timeout   *int64 `json:"timeout"`
		AutoPause bool   `json:"autoPause"`
		Memory    *bool  `json:"memory"`
	}
	if err := readBody(w, r, &q, true); err != nil {
		return err
	}
	if q.AutoPause {
		return notCarried("autoPause")
	}
	if err := s.mayForget(r, k, q.Memory); err != nil {
		return err
	}
	life, err := lifetime(q.Timeout, defaultTimeout)
	if err != nil {
		return err
	}
	b, err := s.o.Sandboxes.Handle(k, pathID(r)).Resume(r.Context(), life)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusCreated, s.answer(b))
	return nil
}

func (s *Server) kill(w http.ResponseWriter, r *http.Request, k *persistent.Key) error {
	return noContent(w, s.o.Sandboxes.Handle(k, pathID(r)).Kill(r.Context()))
}

func (s *Server) setTimeout(w http.ResponseWriter, r *http.Request, k *persistent.Key) error {
	var q struct {
		Timeout *int64 `json:"timeout"`
	}
	if err := readBody(w, r, &q, false); err != nil {
		return err
	}
	if q.Timeout == nil {
		return &apiError{http.StatusBadRequest, "timeout is missing"}
	}
	life, err := lifetime(q.Timeout, 0)
	if err != nil {
		return err
	}
	_, err = s.o.Sandboxes.Handle(k, pathID(r)).SetTimeout(r.Context(), life)
	return noContent(w, err)
}

// refresh keeps a sandbox alive for longer; it never shortens its life.
func (s *Server) refresh(w http.ResponseWriter, r *http.Request, k *persistent.Key) error {
	var q struct {
		Duration *int64 `json:"duration"`
	}
	if err := readBody(w, r, &q, true); err != nil {
		return err
	}
	life, err := lifetime(q.Duration, defaultTimeout)
	if err != nil {
		return err
	}
	_, err = s.o.Sandboxes.Handle(k, pathID(r)).Extend(r.Context(), life)
	return noContent(w, err)
}

// pause stops a sandbox, with its memory or without; 409 says that it is paused already.
func (s *Server) pause(w http.ResponseWriter, r *http.Request, k *persistent.Key) error {
	var q struct {
		Memory *bool `json:"memory"`
	}
	if err := readBody(w, r, &q, true); err != nil {
		return err
	}
	h := s.o.Sandboxes.Handle(k, pathID(r))
	pause := h.Pause
	if isFalse(q.Memory) {
		pause = h.PauseFiles
	}
	_, err := pause(r.Context())
	return noContent(w, err)
}

func noContent(w http.ResponseWriter, err error) error {
	if err == nil {
		w.WriteHeader(http.StatusNoContent)
	}
	return err
}

// pathID is the sandbox that a path names; where it names none, it is an id
// that no sandbox has.
func pathID(r *http.Request) string { return wireID(r.PathValue("id")) }
