// SPDX-License-Identifier: Apache-2.0

package e2b

import (
	"net/http"
	"strings"
	"time"

	"github.com/caisson-run/caisson/api"
	"github.com/caisson-run/caisson/internal/envd"
	"github.com/caisson-run/caisson/session/persistent"
	"github.com/caisson-run/caisson/session/registry"
)

// What a sandbox's tokens are for; see persistent.Sandboxes.Token.
const (
	accessPurpose  = "e2b access"
	trafficPurpose = "e2b traffic"
)

// What the frontend keeps with a sandbox.
const (
	notePrivate = persistent.PortNotes + "private"  // its ports ask for the traffic token
	noteMask    = persistent.PortNotes + "maskHost" // what its ports see as the host; ${PORT} is the port
)

func private(b *persistent.Sandbox) bool { return b.Notes[notePrivate] != "" }

// inside is a sandbox for one request that had the right to it.
type inside struct {
	*persistent.Inside // as the sandbox's own user
	box                *persistent.Sandbox
	owner              *persistent.Key
	user               string            // whom the request names; empty for the sandbox's own
	files              *persistent.Files // with the rights of that user
}

// agentCall answers one request to an agent. What it returns is told in the way
// of its kind.
type agentCall func(w http.ResponseWriter, r *http.Request, in *inside)

// agent are the paths of an agent. Those by which E2B's own servers talk with
// theirs (/init, /freeze) are no paths here.
func (s *Server) agent() map[string]agentCall {
	return map[string]agentCall{
		"POST " + envd.PathStart:      s.streaming(s.serveStart),
		"POST " + envd.PathConnect:    s.streaming(s.serveConnect),
		"POST " + envd.PathList:       unary(s.serveList),
		"POST " + envd.PathSendInput:  unary(s.serveSendInput),
		"POST " + envd.PathCloseStdin: unary(s.serveCloseStdin),
		"POST " + envd.PathSendSignal: unary(s.serveSendSignal),
		"POST " + envd.PathUpdate:     unary(s.serveUpdate),

		"POST " + envd.PathStat:    unary(s.serveStat),
		"POST " + envd.PathMakeDir: unary(s.serveMakeDir),
		"POST " + envd.PathMove:    unary(s.serveMove),
		"POST " + envd.PathListDir: unary(s.serveListDir),
		"POST " + envd.PathRemove:  unary(s.serveRemove),

		"POST " + envd.PathWatchDir:         s.streaming(s.serveWatchDir),
		"POST " + envd.PathCreateWatcher:    unary(s.serveCreateWatcher),
		"POST " + envd.PathGetWatcherEvents: unary(s.serveWatcherEvents),
		"POST " + envd.PathRemoveWatcher:    unary(s.serveRemoveWatcher),

		"GET " + envd.PathEnvs:     plain(s.serveEnvs),
		"GET " + envd.PathMetrics:  plain(s.serveMetrics),
		"GET " + envd.PathFiles:    plain(s.serveDownload),
		"HEAD " + envd.PathFiles:   plain(s.serveDownload),
		"POST " + envd.PathFiles:   plain(s.serveUpload),
		"POST " + envd.PathCompose: plain(s.serveCompose),
	}
}

// serveEnvd answers a request to a sandbox's agent.
func (s *Server) serveEnvd(w http.ResponseWriter, r *http.Request, t target) {
	b, owner, err := s.o.Sandboxes.Find(r.Context(), t.ID)
	if err != nil {
		writeGone(w, t.ID)
		return
	}
	if r.URL.Path == envd.PathHealth && r.Method == http.MethodGet {
		s.health(w, b)
		return
	}
	user, err := s.mayUse(r, b)
	if err != nil {
		writeAPIError(w, err)
		return
	}
	s.within(w, r, b, owner, user)
}

// health says whether a sandbox runs. Everybody who knows its name may ask.
func (s *Server) health(w http.ResponseWriter, b *persistent.Sandbox) {
	if !running(b) {
		writeGone(w, b.ID)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// mayUse says whether a request has the right to b's agent: its token, or for
// files a signature that was made with it. The user is whose rights it has: with
// a signature those that were signed, whatever else the request says.
func (s *Server) mayUse(r *http.Request, b *persistent.Sandbox) (user string, _ error) {
	token := s.o.Sandboxes.Token(b, accessPurpose)
	if same(r.Header.Get(headerAccess), token) {
		return requestUser(r), nil
	}
	if u, ok := signedURL(r.Method, r.URL.Query()); ok && r.URL.Path == envd.PathFiles {
		if u.by(token) {
			return u.user, u.expired(time.Now())
		}
		return "", &apiError{http.StatusUnauthorized, "invalid signature"}
	}
	return "", &apiError{http.StatusUnauthorized, "the sandbox's access token is missing or wrong"}
}

// signedFiles finds the sandbox of a signed URL that does not name one: the one
// whose token made the signature. Clients build such URLs when all sandboxes
// are behind one address.
func (s *Server) signedFiles(w http.ResponseWriter, r *http.Request) {
	u, _ := signedURL(r.Method, r.URL.Query())
	b, owner, err := s.o.Sandboxes.Search(r.Context(), func(b *persistent.Sandbox) bool { return u.by(s.o.Sandboxes.Token(b, accessPurpose)) })
	if err != nil {
		writeAPIError(w, &apiError{http.StatusUnauthorized, "invalid signature"})
		return
	}
	if err := u.expired(time.Now()); err != nil {
		writeAPIError(w, err)
		return
	}
	s.within(w, r, b, owner, u.user)
}

// within hands a request to the agent of a sandbox that it has the right to, as
// a user of the sandbox's.
func (s *Server) within(w http.ResponseWriter, r *http.Request, b *persistent.Sandbox, owner *persistent.Key, user string) {
	call := s.envd[r.Method+" "+r.URL.Path]
	if call == nil {
		writeAPIError(w, &apiError{http.StatusNotFound, "the agent has nothing at " + r.Method + " " + api.Quoted(r.URL.Path)})
		return
	}
	// Who has a signature and no token takes no place of the owner's.
	enter := s.o.Memory.Visit
	if same(r.Header.Get(headerAccess), s.o.Sandboxes.Token(b, accessPurpose)) {
		enter = s.o.Memory.Hold
	}
	held, err := enter(owner.ID)
	if err != nil {
		writeAPIError(w, err)
		return
	}
	defer held.Done()
	a, leave, err := s.o.Sandboxes.Handle(owner, b.ID).Enter(r.Context())
	if err != nil {
		if e := asAPI(err); e.Code == http.StatusNotFound || e.Code == http.StatusConflict {
			writeGone(w, b.ID)
		} else {
			writeAPIError(w, err)
		}
		return
	}
	defer leave()
	if r.URL.Path != envd.PathFiles {
		r.Body = held.Body(r.Body)
	}
	call(w, r, &inside{Inside: a, box: b, owner: owner, user: user, files: s.o.Sandboxes.Handle(owner, b.ID).Files("e2b", user)})
}

func running(b *persistent.Sandbox) bool { return b.State == registry.Running }

// requestUser is whom a request names: envd's Basic authentication, which has
// no password, or the parameter of /files.
func requestUser(r *http.Request) string {
	user, _, _ := r.BasicAuth()
	if user == "" && r.URL.Path == envd.PathFiles {
		user = r.URL.Query().Get("username")
	}
	return user
}

// lost says that a call failed since the sandbox has gone: clients are not told
// anything then but by the connection that breaks, and ask /health.
func (in *inside) lost() bool {
	select {
	case <-in.Gone:
		return true
	default:
		return false
	}
}

// streaming makes a call of a stream. Its errors are told in the last envelope.
func (s *Server) streaming(f func(http.ResponseWriter, *http.Request, *inside) (*stream, error)) agentCall {
	return func(w http.ResponseWriter, r *http.Request, in *inside) {
		if kind, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";"); kind != "application/connect+json" {
			w.Header().Set("Accept-Post", "application/connect+json")
			writeAPIError(w, &apiError{http.StatusUnsupportedMediaType, "streams are taken as application/connect+json"})
			return
		}
		out, err := f(w, r, in)
		if r.Context().Err() != nil {
			return
		}
		if in.lost() {
			panic(http.ErrAbortHandler)
		}
		if out == nil {
			out = newStream(w)
		}
		out.end(err)
	}
}

// unary makes a call of one message for another.
func unary[Q any](f func(*http.Request, *inside, *Q) (any, error)) agentCall {
	return func(w http.ResponseWriter, r *http.Request, in *inside) {
		var q Q
		err := readUnary(w, r, &q)
		var a any
		if err == nil {
			a, err = f(r, in, &q)
		}
		switch {
		case err == nil:
			writeJSON(w, http.StatusOK, a)
		case in.lost():
			writeGone(w, in.box.ID)
		default:
			writeConnectError(w, err)
		}
	}
}

// plain makes a call whose errors are envd's own.
func plain(f func(http.ResponseWriter, *http.Request, *inside) error) agentCall {
	return func(w http.ResponseWriter, r *http.Request, in *inside) {
		err := f(w, r, in)
		switch {
		case err == nil:
		case in.lost():
			writeGone(w, in.box.ID)
		default:
			writeAPIError(w, err)
		}
	}
}

// serveEnvs tells the variables of the sandbox.
func (s *Server) serveEnvs(w http.ResponseWriter, r *http.Request, in *inside) error {
	env, err := in.Variables(r.Context())
	if err == nil {
		writeJSON(w, http.StatusOK, env)
	}
	return err
}

// serveMetrics tells what the kernel inside counts.
func (s *Server) serveMetrics(w http.ResponseWriter, r *http.Request, in *inside) error {
	m, err := in.Metrics(r.Context())
	if err != nil {
		return err
	}
	const mib = 1 << 20
	writeJSON(w, http.StatusOK, envd.Metrics{
		Timestamp: m.Time.Unix(), CPUCount: m.CPUs, CPUUsed: float32(m.CPUPercent), MemTotalMiB: m.MemTotal / mib, MemUsedMiB: m.MemUsed / mib,
		MemTotal: m.MemTotal, MemUsed: m.MemUsed, MemCache: m.MemCache, DiskUsed: m.DiskUsed, DiskTotal: m.DiskTotal,
	})
	return nil
}
