// SPDX-License-Identifier: Apache-2.0

//go:build linux

package docker

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// fakeEngine records what it is asked for and makes nothing.
type fakeEngine struct {
	host string

	mu      sync.Mutex
	info    map[string]any
	version string
	calls   []string          // "POST /containers/create"
	answers map[string]string // what it answers at other paths
	created []json.RawMessage
	make    func() // has it make containers after all, when that returns
}

func newFakeEngine(t testing.TB) *fakeEngine {
	dir, err := os.MkdirTemp("", "fake-engine-") // a short path: sockets have little room
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	f := &fakeEngine{host: "unix://" + filepath.Join(dir, "s"), version: "1.41", info: map[string]any{
		"ServerVersion": "1.2.3", "OSType": "linux", "CgroupVersion": "2", "MemoryLimit": true, "SwapLimit": true, "CpuCfsQuota": true, "PidsLimit": true,
		"SecurityOptions": []string{"name=seccomp,profile=default"},
	}}
	l, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: f}
	go server.Serve(l)
	t.Cleanup(func() { server.Close() })
	return f
}

func (f *fakeEngine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	path := strings.TrimPrefix(r.URL.Path, "/v"+f.version)
	f.calls = append(f.calls, r.Method+" "+path)
	switch {
	case path == "/_ping":
		w.Header().Set("Api-Version", f.version)
	case path == "/info":
		json.NewEncoder(w).Encode(f.info)
	case path == "/containers/create":
		b, _ := io.ReadAll(r.Body)
		f.created = append(f.created, b)
		if f.make != nil {
			f.make()
			io.WriteString(w, `{"Id":"x"}`)
			return
		}
		http.Error(w, `{"message":"this engine makes nothing"}`, http.StatusInternalServerError)
	case f.answers[path] != "":
		io.WriteString(w, f.answers[path])
	default:
		http.Error(w, `{"message":"no such thing"}`, http.StatusNotFound)
	}
}

// count is how often it was asked to create something.
func (f *fakeEngine) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.created)
}

// asked is what it was asked to create last.
func (f *fakeEngine) asked(t testing.TB) json.RawMessage {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.created) == 0 {
		t.Fatalf("it was not asked to create anything: %q", f.calls)
	}
	return f.created[len(f.created)-1]
}
