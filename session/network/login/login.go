// SPDX-License-Identifier: Apache-2.0

// Package login reads the logins that agents keep on this host (Claude Code, Codex, Gemini
// CLI), renews them, and makes up what the agent finds in a sandbox in their place.
//
// A login has an access token, which lasts for an hour to some days, and a refresh token,
// which gives new ones and must not be used twice. Neither goes into a sandbox. The router
// has the access token; the refresh token stays here, and goes to its provider alone.
package login

import (
	"context"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/caisson-run/caisson/internal/files"
)

// Token is an access token.
type Token struct {
	Value   string
	Expires time.Time // zero when that is not known
	Serial  int64     // another one for each value
}

// Login is one login of this host. It may be used from many goroutines.
type Login struct {
	// Name is one of rule.Logins.
	Name string
	// Path is the file that it is in.
	Path string
	// Client asks the provider for a new token; nil is one that trusts whom this host
	// trusts.
	Client *http.Client
	// Endpoint takes the place of the provider's, in tests.
	Endpoint string

	provider *provider

	mu      sync.Mutex
	serial  int64
	value   string    // the one that serial is of
	renewed time.Time // when one was last asked for because a host refused it
	failed  time.Time // when none was to be had
	why     error
}

// provider is what is special of one.
type provider struct {
	file     string // below the home directory
	variable string // of a directory that has it instead
	home     string // what file has before what is in that directory
	endpoint string // "" is none that caisson can ask
	clientID string
	// program is what a person runs to log in again.
	program string

	read    func(d document) (state, error)
	write   func(d document, a *answer, now time.Time) error
	inside  func(d document, placeholder string, now time.Time) (any, error)
	request func(s state, clientID string) any
	env     func(placeholder string) map[string]string
}

// state is what counts of a login's file.
type state struct {
	access, refresh string
	expires         time.Time
	scopes          []string
}

// maxFile bounds a login's file, in bytes.
const maxFile = 256 << 10

// Errors of Open. Others are of files and providers; none has a token in it.
var (
	ErrAbsent  = errors.New("there is no login on this host")
	ErrUnknown = errors.New("there is no such login")
)

// Open finds a login of this host: its agent's own file. lookup gives variables; nil is
// this process's. ErrAbsent says that there is none.
func Open(name string, lookup func(string) (string, bool)) (*Login, error) {
	p, ok := providers()[name]
	if !ok {
		return nil, ErrUnknown
	}
	if lookup == nil {
		lookup = os.LookupEnv
	}
	dir, _ := lookup(p.variable)
	rest, err := filepath.Rel(p.home, p.file)
	if err != nil {
		return nil, err
	}
	if dir == "" {
		home, _ := lookup("HOME")
		if home == "" {
			return nil, ErrAbsent
		}
		dir, rest = home, p.file
	}
	l := &Login{Name: name, Path: filepath.Join(dir, rest), Endpoint: p.endpoint, provider: p}
	if !filepath.IsAbs(l.Path) {
		return nil, errors.New("its agent's directory is not an absolute path")
	}
	// Who keeps such files elsewhere and has links to them wants to keep the links.
	real, err := filepath.EvalSymlinks(l.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrAbsent
	}
	if err != nil {
		return nil, errors.New("its file cannot be found")
	}
	l.Path = real
	_, _, err = l.read()
	return l, err
}

// Trust has a client ask the provider, unless one is set.
func (l *Login) Trust(client *http.Client) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.Client == nil {
		l.Client = client
	}
}

// Program is what a person runs to log in again.
func (l *Login) Program() string { return l.provider.program }

// read reads the file.
func (l *Login) read() (document, state, error) {
	b, err := files.ReadRegular(l.Path, maxFile)
	if err != nil {
		return nil, state{}, errors.New("its file cannot be read")
	}
	d, err := parse(b)
	if err != nil {
		return nil, state{}, err
	}
	s, err := l.provider.read(d)
	return d, s, err
}

// Token gives the access token that the file has, whether it has expired or not.
func (l *Login) Token() (Token, error) {
	_, s, err := l.read()
	if err != nil {
		return Token{}, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.token(s), nil
}

// token numbers what is in the file. The caller holds mu.
func (l *Login) token(s state) Token {
	if s.access != l.value {
		l.value = s.access
		l.serial++
	}
	return Token{Value: s.access, Expires: s.expires, Serial: l.serial}
}

// Leeway is how long before its end a token counts as expired, and renewEvery how often a
// host's refusal is believed: code inside can provoke one, in many sandboxes at once.
const (
	Leeway     = time.Minute
	renewEvery = 10 * time.Minute
	// failedFor is how long a provider that gave no token is not asked again.
	failedFor = 30 * time.Second
)

// Renew gives a token in the place of the one with the number serial, which has expired or
// which a host refused: another one that the file has by now, or a new one of the
// provider's, which is written to the file. Where it is neither due nor refused lately, it
// gives the same again.
func (l *Login) Renew(ctx context.Context, serial int64) (Token, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	unlock, err := lock(filepath.Dir(l.Path))
	if err != nil {
		return Token{}, errors.New("its directory cannot be locked")
	}
	defer unlock()
	d, s, err := l.read()
	if err != nil {
		return Token{}, err
	}
	now := time.Now()
	due := s.due(now)
	if t := l.token(s); t.Serial != serial && !due {
		return t, nil
	} else if !due {
		if now.Sub(l.renewed) < renewEvery || l.fresh(now) {
			return t, nil
		}
		l.renewed = now
	}
	if now.Sub(l.failed) < failedFor {
		return Token{}, l.why
	}
	// What gives a new token may be worth nothing afterwards: first comes the place for it.
	f, err := l.begin()
	if err != nil {
		return Token{}, errors.New("its file cannot be written")
	}
	defer f.Drop()
	a, err := l.ask(ctx, s)
	if err != nil {
		l.failed, l.why = now, err
		return Token{}, err
	}
	if err := l.provider.write(d, a, now); err != nil {
		return Token{}, err
	}
	// Its agent knows nothing of our lock. What it has written meanwhile is newer.
	if _, since, err := l.read(); err == nil && since.refresh != s.refresh && !since.due(now) {
		return l.token(since), nil
	}
	b, err := d.bytes()
	if err == nil {
		_, err = f.Write(b)
	}
	if errors.Join(err, f.Sync(), f.Written()) != nil || f.Keep(filepath.Base(l.Path)) != nil {
		return Token{}, errors.New("its file cannot be written, and its new token is lost; run " + l.provider.program + " on this host and log in again")
	}
	if s, err = l.provider.read(d); err != nil {
		return Token{}, err
	}
	return l.token(s), nil
}

// fresh says whether the file was written within renewEvery: by its agent or by any caisson,
// for whichever sandbox.
func (l *Login) fresh(now time.Time) bool {
	info, err := os.Stat(l.Path)
	if err != nil {
		return false
	}
	age := now.Sub(info.ModTime())
	return age >= 0 && age < renewEvery
}

// due says whether the access token has expired, or is about to.
func (s state) due(now time.Time) bool {
	return !s.expires.IsZero() && !now.Add(Leeway).Before(s.expires)
}

// begin makes the file that is to take the place of this one, whole or not at all, for the
// same user.
func (l *Login) begin() (*draft, error) {
	root, err := os.OpenRoot(filepath.Dir(l.Path))
	if err != nil {
		return nil, err
	}
	info, err := root.Stat(filepath.Base(l.Path))
	if err != nil {
		root.Close()
		return nil, err
	}
	f, err := files.Begin(root, ".", 0o600)
	if err != nil {
		root.Close()
		return nil, err
	}
	d := &draft{f, root}
	if err := own(f.File, info); err != nil {
		d.Drop()
		return nil, err
	}
	return d, nil
}

// draft is a file without a name. Drop drops what was not kept.
type draft struct {
	*files.File
	root *os.Root
}

func (d *draft) Drop() {
	d.File.Drop()
	d.root.Close()
}

// Target is where an agent inside looks for its file, below its home directory; empty for
// one that is told by variables.
func (l *Login) Target() string {
	if l.provider.inside == nil {
		return ""
	}
	return l.provider.file
}

// Inside is the file that an agent finds there: it has the shape of the host's, a
// placeholder for the access token, and nothing that a new one could be had for. It does
// not expire.
func (l *Login) Inside(placeholder string) ([]byte, error) {
	d, _, err := l.read()
	if err != nil {
		return nil, err
	}
	v, err := l.provider.inside(d, placeholder, time.Now())
	if err != nil {
		return nil, err
	}
	return marshal(v)
}

// Env are the variables by which an agent is told of a placeholder instead.
func Env(name, placeholder string) map[string]string {
	p, ok := providers()[name]
	if !ok || p.env == nil {
		return nil
	}
	return p.env(placeholder)
}
