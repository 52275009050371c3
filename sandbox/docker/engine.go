// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/caisson-run/caisson/sandbox"
)

// The versions of the API that this package speaks. 1.41 (Docker 20.10, Podman
// 3 and 4) has private cgroup namespaces; of what came later only recursive
// read-only mounts are used, where the engine has them.
const (
	oldestAPI       = "1.41"
	newestAPI       = "1.51"
	recursiveROFrom = "1.44"
)

// maxAnswer bounds an engine's JSON answer, in bytes.
const maxAnswer = 4 << 20

// engine speaks to one engine. It is safe for use from many goroutines.
//
// It is a client of our own, a dozen calls over one socket: moby's client
// costs 1.3 ms of package init, which every re-exec'd half of caisson would
// pay, and 18 modules.
type engine struct {
	at   address
	tls  *tls.Config // nil: plain
	http *http.Client

	importing sync.Mutex // held while the engine is given an image
	negotiate sync.Mutex
	version   string // of the API; set by ping
	podman    bool   // set by ping
}

// newEngine prepares to speak to the engine at a. Nothing is connected yet.
func newEngine(a address) (*engine, error) {
	e := &engine{at: a}
	if a.network == "tcp" && (os.Getenv("DOCKER_TLS_VERIFY") != "" || os.Getenv("DOCKER_CERT_PATH") != "") {
		var err error
		if e.tls, err = tlsConfig(os.Getenv("DOCKER_CERT_PATH"), a.addr); err != nil {
			return nil, err
		}
	}
	e.http = &http.Client{
		Transport: &http.Transport{
			DialContext:            func(ctx context.Context, _, _ string) (net.Conn, error) { return e.dial(ctx) },
			DisableCompression:     true,
			MaxResponseHeaderBytes: 64 << 10,
			MaxIdleConns:           4,
			IdleConnTimeout:        30 * time.Second,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return e, nil
}

// tlsConfig reads ca.pem, cert.pem and key.pem as docker(1) does. The engine is
// always verified.
func tlsConfig(dir, addr string) (*tls.Config, error) {
	fail := func(err error) (*tls.Config, error) {
		return nil, &sandbox.Error{Op: "engine tcp://" + addr, Kind: sandbox.ErrInvalid, Problem: "its certificates cannot be read", Cause: err,
			Hint: "DOCKER_CERT_PATH must name a directory with ca.pem, cert.pem and key.pem"}
	}
	if dir == "" {
		dir = filepath.Join(os.Getenv("HOME"), ".docker")
	}
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return fail(err)
	}
	ca, err := os.ReadFile(filepath.Join(dir, "ca.pem"))
	if err != nil {
		return fail(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(ca) {
		return fail(errors.New("ca.pem holds no certificate"))
	}
	own, err := tls.LoadX509KeyPair(filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"))
	if err != nil {
		return fail(err)
	}
	return &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{own}, ServerName: host, MinVersion: tls.VersionTLS12}, nil
}

func (e *engine) dial(ctx context.Context) (net.Conn, error) {
	d := net.Dialer{Timeout: 5 * time.Second}
	if e.tls != nil {
		return (&tls.Dialer{NetDialer: &d, Config: e.tls}).DialContext(ctx, e.at.network, e.at.addr)
	}
	return d.DialContext(ctx, e.at.network, e.at.addr)
}

// ping finds out which version of the API to speak. It asks once.
func (e *engine) ping(ctx context.Context) (string, error) {
	e.negotiate.Lock()
	defer e.negotiate.Unlock()
	if e.version != "" {
		return e.version, nil
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://engine/_ping", nil)
	if err != nil {
		return "", err
	}
	resp, err := e.http.Do(req)
	if err != nil {
		return "", e.unreachable(err)
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 1<<10))
	theirs := resp.Header.Get("Api-Version")
	e.podman = resp.Header.Get("Libpod-Api-Version") != ""
	switch {
	case resp.StatusCode != http.StatusOK || !isVersion(theirs):
		return "", sandbox.Errorf(sandbox.ErrUnavailable, "engine "+e.at.String(), "what listens there is no Docker or Podman engine")
	case older(theirs, oldestAPI):
		return "", &sandbox.Error{Op: "engine " + e.at.String(), Kind: sandbox.ErrUnsupported,
			Problem: "it speaks API " + theirs + ", caisson needs " + oldestAPI, Hint: "upgrade it to Docker 20.10 or Podman 4"}
	case older(theirs, newestAPI):
		e.version = theirs
	default:
		e.version = newestAPI
	}
	return e.version, nil
}

// isVersion and older compare "1.41" and the like.
func isVersion(s string) bool { _, _, ok := splitVersion(s); return ok }

func older(a, b string) bool {
	a1, a2, _ := splitVersion(a)
	b1, b2, _ := splitVersion(b)
	return a1 < b1 || a1 == b1 && a2 < b2
}

func splitVersion(s string) (major, minor int, ok bool) {
	x, y, found := strings.Cut(s, ".")
	major, err1 := strconv.Atoi(x)
	minor, err2 := strconv.Atoi(y)
	return major, minor, found && err1 == nil && err2 == nil && major >= 0 && minor >= 0
}

// unreachable explains why an engine did not answer.
func (e *engine) unreachable(err error) error {
	out := &sandbox.Error{Op: "engine " + e.at.String(), Kind: sandbox.ErrUnavailable, Problem: "it does not answer", Cause: err, Hint: noEngineRemedy}
	switch {
	case errors.Is(err, os.ErrPermission):
		out.Problem, out.Hint = "you may not speak to it", "as root: usermod -aG docker $USER, then log in again (a user who may speak to the engine is as good as root); or use rootless Podman"
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		out.Hint = "see whether it hangs: docker version"
	}
	return out
}

// answerError is what the engine said no with.
type answerError struct {
	status  int
	message string
}

func (e *answerError) Error() string { return fmt.Sprintf("%s (%d)", e.message, e.status) }

// isStatus says whether err is an engine's answer with that status.
func isStatus(err error, status int) bool {
	var a *answerError
	return errors.As(err, &a) && a.status == status
}

// call sends one request and reads a JSON answer into out, unless that is nil.
func (e *engine) call(ctx context.Context, method, path string, query url.Values, body, out any) error {
	var r io.Reader
	contentType := ""
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return err
		}
		r, contentType = bytes.NewReader(b), "application/json"
	}
	resp, err := e.send(ctx, method, path, query, r, contentType)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer := io.LimitReader(resp.Body, maxAnswer)
	if out == nil {
		_, _ = io.Copy(io.Discard, answer)
		return nil
	}
	if err := json.NewDecoder(answer).Decode(out); err != nil {
		return &sandbox.Error{Op: "engine " + e.at.String(), Kind: sandbox.ErrUnavailable, Problem: "its answer to " + path + " cannot be read", Cause: err}
	}
	return nil
}

// send sends one request. An answer that is no success is an *answerError.
func (e *engine) send(ctx context.Context, method, path string, query url.Values, body io.Reader, contentType string) (*http.Response, error) {
	req, err := e.request(ctx, method, path, query, body, contentType)
	if err != nil {
		return nil, err
	}
	resp, err := e.http.Do(req)
	if err != nil {
		return nil, e.unreachable(err)
	}
	return resp, failure(resp)
}

func (e *engine) request(ctx context.Context, method, path string, query url.Values, body io.Reader, contentType string) (*http.Request, error) {
	version, err := e.ping(ctx)
	if err != nil {
		return nil, err
	}
	u := url.URL{Scheme: "http", Host: "engine", Path: "/v" + version + path, RawQuery: query.Encode()}
	req, err := http.NewRequestWithContext(ctx, method, u.String(), body)
	if err != nil {
		return nil, err
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	return req, nil
}

// failure makes an error of an answer that is none of 1xx, 2xx and 304, and
// closes it then.
func failure(resp *http.Response) error {
	if resp.StatusCode < 300 || resp.StatusCode == http.StatusNotModified {
		return nil
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(io.LimitReader(resp.Body, 16<<10))
	var said struct {
		Message string `json:"message"`
	}
	if json.Unmarshal(b, &said) != nil || said.Message == "" {
		said.Message = http.StatusText(resp.StatusCode)
	}
	return &answerError{resp.StatusCode, strings.TrimSpace(said.Message)}
}

// close lets go of idle connections.
func (e *engine) close() { e.http.CloseIdleConnections() }
