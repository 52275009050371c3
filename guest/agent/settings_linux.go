// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"maps"
	"net/http"
	"slices"
	"sync"

	"github.com/caisson-run/caisson/guest/wire"
)

// standardPath is where commands are looked for when neither the sandbox's
// variables nor a request's have a PATH.
const standardPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// settings are what the host says about the sandbox as a whole.
type settings struct {
	mu  sync.Mutex
	env map[string]string
	dir string // where processes start that do not say; empty is the user's home
}

func (s *settings) set(q *wire.ResumeRequest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if q.Env != nil {
		s.env = maps.Clone(q.Env)
	}
	if q.Dir != nil {
		s.dir = *q.Dir
	}
}

func (s *settings) directory() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dir
}

// environment is a process's: what every one has, then the sandbox's, then its
// own. Each name is there once.
func (s *settings) environment(u user, own map[string]string) []string {
	all := map[string]string{"PATH": standardPath, "HOME": u.home, "USER": u.name, "LOGNAME": u.name}
	s.mu.Lock()
	maps.Copy(all, s.env)
	s.mu.Unlock()
	maps.Copy(all, own)
	var env []string
	for _, k := range slices.Sorted(maps.Keys(all)) {
		env = append(env, k+"="+all[k])
	}
	return env
}

// serveEnvs answers with the sandbox's variables.
func (a *Agent) serveEnvs(w http.ResponseWriter, _ *http.Request) {
	a.settings.mu.Lock()
	env := maps.Clone(a.settings.env)
	a.settings.mu.Unlock()
	if env == nil {
		env = map[string]string{}
	}
	w.Header().Set("Cache-Control", "no-store")
	writeJSON(w, http.StatusOK, env)
}
