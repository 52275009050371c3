// SPDX-License-Identifier: Apache-2.0

package e2b

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/caisson-run/caisson/api"
	"github.com/caisson-run/caisson/interpreter"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
	"github.com/caisson-run/caisson/session/persistent"
)

// interpreterPort is the port under which clients know a sandbox's code interpreter. The
// frontend answers there, whatever listens on it inside. Running a cell wants the sandbox's
// access token under every host name; contexts, with which E2B's client sends none, are as
// public as a port, and run nothing of the caller's.
const interpreterPort = 49999

// maxContext is how long a request for a context may be, in bytes.
const maxContext = 64 << 10

// interpreting is one request to a sandbox's code interpreter.
type interpreting struct {
	s      *Server
	handle *persistent.Handle
	box    *persistent.Sandbox
	body   io.ReadCloser
	held   *api.Held
	owns   bool // it has the sandbox's access token
}

// serveInterpreter answers a request to a sandbox's code interpreter.
func (s *Server) serveInterpreter(w http.ResponseWriter, r *http.Request, t target) {
	b, owner, err := s.o.Sandboxes.Find(r.Context(), t.ID)
	if err != nil {
		writeGone(w, t.ID)
		return
	}
	if private(b) && !same(r.Header.Get(headerTraffic), s.o.Sandboxes.Token(b, trafficPurpose)) {
		writeText(w, http.StatusForbidden, "this port is not public; send the sandbox's traffic access token as "+headerTraffic)
		return
	}
	q := &interpreting{s: s, handle: s.o.Sandboxes.Handle(owner, b.ID), box: b, owns: same(r.Header.Get(headerAccess), s.o.Sandboxes.Token(b, accessPurpose))}
	enter := s.o.Memory.Visit
	if q.owns {
		enter = s.o.Memory.Hold
	}
	if q.held, err = enter(owner.ID); err != nil {
		q.fail(w, r, err)
		return
	}
	defer q.held.Done()
	q.body = q.held.Body(r.Body)
	w = api.NewTransferWriter(w)
	id, restart := strings.CutSuffix(strings.TrimPrefix(r.URL.EscapedPath(), "/contexts/"), "/restart")
	if id, err = url.PathUnescape(id); err != nil {
		writeText(w, http.StatusNotFound, "there is nothing at this path")
		return
	}
	switch p := r.URL.Path; {
	case p == "/health" && r.Method == http.MethodGet:
		q.health(w)
	case p == "/execute" && r.Method == http.MethodPost && !q.owns:
		writeText(w, http.StatusUnauthorized, "the sandbox's access token is missing or wrong: running code wants it as "+headerAccess)
	case p == "/execute" && r.Method == http.MethodPost:
		q.execute(w, r)
	case p == "/contexts" && r.Method == http.MethodGet:
		err = q.list(w, r)
	case p == "/contexts" && r.Method == http.MethodPost:
		err = q.create(w, r)
	case strings.HasPrefix(p, "/contexts/") && r.Method == http.MethodPost && restart:
		if err = q.handle.RestartContext(r.Context(), "", id); isDefault(id, err) {
			err = nil
		}
		err = q.done(w, err)
	case strings.HasPrefix(p, "/contexts/") && r.Method == http.MethodDelete && !restart:
		err = q.done(w, q.handle.RemoveContext(r.Context(), "", id))
	default:
		writeText(w, http.StatusNotFound, "the code interpreter has nothing at "+r.Method+" "+api.Quoted(p))
	}
	if err != nil {
		q.fail(w, r, err)
	}
}

// health says whether the sandbox runs.
func (q *interpreting) health(w http.ResponseWriter) {
	if !running(q.box) {
		writeGone(w, q.box.ID)
		return
	}
	writeText(w, http.StatusOK, "OK")
}

func writeText(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text) // who does not read it knows the status
}

// fail answers with an error, in plain text, as clients of the interpreter show it.
func (q *interpreting) fail(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() != nil {
		panic(http.ErrAbortHandler)
	}
	if q.gone(r) {
		writeGone(w, q.box.ID)
		return
	}
	e := asAPI(err)
	writeText(w, e.Code, e.Message)
}

// gone says whether the sandbox has ended since the request came.
func (q *interpreting) gone(r *http.Request) bool {
	b, _, err := q.s.o.Sandboxes.Find(r.Context(), q.box.ID)
	return err != nil || !running(b)
}

// contextAnswer is a context as clients know it.
type contextAnswer struct {
	ID       string `json:"id"`
	Language string `json:"language"`
	Cwd      string `json:"cwd"`
}

// kernelOf is the name here of a language of E2B's, and languageOf the other way.
func kernelOf(language string) string {
	switch l := strings.ToLower(language); l {
	case "r":
		return "ir"
	default:
		return interpreter.Language(l)
	}
}

func languageOf(kernel string) string {
	if kernel == "ir" {
		return "r"
	}
	return kernel
}

func answerOf(c interpreter.Context) contextAnswer {
	return contextAnswer{c.ID, languageOf(c.Language), c.Dir}
}

// bootContexts are the default contexts that clients expect in every sandbox. Those that no cell
// has used yet are none of the sandbox's: their IDs mean the default ones.
var bootContexts = []string{interpreter.Python, interpreter.JavaScript}

// isDefault says whether a call failed since it is about a default context that no cell has used.
func isDefault(id string, err error) bool {
	return errors.Is(err, sandbox.ErrNotFound) && slices.Contains(bootContexts, id)
}

func (q *interpreting) list(w http.ResponseWriter, r *http.Request) error {
	all, err := q.handle.Contexts(r.Context(), "")
	if err != nil {
		return err
	}
	in, leave, err := q.handle.Enter(r.Context())
	if err != nil {
		return err
	}
	defer leave()
	list := []contextAnswer{}
	for _, language := range bootContexts {
		if !slices.ContainsFunc(all, func(c interpreter.Context) bool { return c.ID == language }) {
			list = append(list, contextAnswer{language, language, in.User.Home})
		}
	}
	for _, c := range all {
		list = append(list, answerOf(c))
	}
	writeJSON(w, http.StatusOK, list)
	return nil
}

// create makes a context. Who has no token gets one of caisson's own kernels alone: another
// is a program of the sandbox's choosing, and that it starts is recorded.
func (q *interpreting) create(w http.ResponseWriter, r *http.Request) error {
	var in struct {
		Language *string `json:"language"`
		Cwd      *string `json:"cwd"`
	}
	if err := q.read(w, &in, maxContext); err != nil {
		return err
	}
	var o interpreter.ContextOptions
	if in.Language != nil {
		o.Language = *in.Language
	}
	if in.Cwd != nil && *in.Cwd != "" {
		if o.Dir = path.Clean(*in.Cwd); !path.IsAbs(o.Dir) {
			return &apiError{http.StatusBadRequest, "cwd is not an absolute path"}
		}
	}
	o.Language = kernelOf(o.Language)
	if !q.owns && !interpreter.Own(o.Language) {
		return &apiError{http.StatusUnauthorized, "a context of " + api.Quoted(o.Language) + " wants the sandbox's access token as " + headerAccess}
	}
	c, err := q.handle.CreateContext(r.Context(), &session.Call{Frontend: "e2b"}, o)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, answerOf(c))
	return nil
}

// done is the answer of a call that has nothing to say.
func (q *interpreting) done(w http.ResponseWriter, err error) error {
	if err == nil {
		writeJSON(w, http.StatusOK, struct{}{})
	}
	return err
}

// read reads a request's JSON. Fields that are not known are ignored, as E2B's server does.
func (q *interpreting) read(w http.ResponseWriter, v any, maximum int64) error {
	control := http.NewResponseController(w)
	control.SetReadDeadline(time.Now().Add(bodyTimeout))
	defer control.SetReadDeadline(time.Time{})
	b, err := io.ReadAll(http.MaxBytesReader(w, api.LimitJSON(q.body), maximum))
	if err != nil {
		if e := asAPI(err); e.Code < 500 {
			return e
		}
		return &apiError{http.StatusBadRequest, "the request cannot be read"}
	}
	if len(b) == 0 {
		return nil
	}
	if err := json.Unmarshal(b, v); err != nil {
		return &apiError{http.StatusBadRequest, "the request is not what this call takes: " + err.Error()}
	}
	return nil
}

// execute runs a cell.
func (q *interpreting) execute(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Code     string            `json:"code"`
		Context  *string           `json:"context_id"`
		Language *string           `json:"language"`
		Env      map[string]string `json:"env_vars"`
	}
	if err := q.read(w, &in, maxMessage); err != nil {
		q.fail(w, r, err)
		return
	}
	call, id := &session.Call{Frontend: "e2b", Source: &session.Source{Code: []byte(in.Code)}}, ""
	call.Env = in.Env
	switch {
	case in.Context != nil && in.Language != nil:
		writeText(w, http.StatusBadRequest, "context_id and language are not given together")
		return
	case in.Context != nil:
		id = *in.Context
	case in.Language != nil:
		call.Source.Language = kernelOf(*in.Language)
	}
	out := &lines{w: w, control: http.NewResponseController(w)}
	defer out.keepAlive(cellAlive)()
	res, err := q.handle.RunCell(r.Context(), call, id, out.event)
	if isDefault(id, err) && !out.begun {
		call.Source = &session.Source{Code: []byte(in.Code), Language: id}
		res, err = q.handle.RunCell(r.Context(), call, "", out.event)
	}
	if r.Context().Err() != nil {
		panic(http.ErrAbortHandler)
	}
	var denied *sandbox.Error
	switch {
	case err == nil && out.ended:
	case err == nil: // a limit has ended it, and no event says so
		out.failure("Ended", res.Reason, "")
	case out.begun || errors.Is(err, sandbox.ErrUnavailable):
		if !out.begun && !q.gone(r) {
			q.fail(w, r, err)
			return
		}
		panic(http.ErrAbortHandler) // the client asks /health, and says that it was killed
	case !errors.Is(err, sandbox.ErrNotFound) && errors.As(err, &denied):
		// What the model can do something about, it is told: clients show it no body of a
		// status.
		out.failure(kindOf(err), denied.Problem, sentence(err))
	default:
		q.fail(w, r, err)
		return
	}
}

// kindOf names an error as Python names exceptions.
func kindOf(err error) string {
	for kind, name := range map[error]string{sandbox.ErrDenied: "Denied", sandbox.ErrInvalid: "Invalid", sandbox.ErrUnsupported: "Unsupported", sandbox.ErrExhausted: "Exhausted"} {
		if errors.Is(err, kind) {
			return name
		}
	}
	return "Failed"
}
