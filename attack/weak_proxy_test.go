// SPDX-License-Identifier: Apache-2.0

//go:build linux

package attack_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
)

// weakEnv has a second caisson that serves stand behind a proxy of the test's own,
// which is weak in one way.
const (
	weakEnv   = "CAISSON_ATTACK_DOOR"
	openProxy = "open" // takes everybody for the owner
	deafProxy = "deaf" // says yes to a change of a network, and changes none

	sameProxy     = "same"     // gives each program the answer of the first
	sharedProxy   = "shared"   // has one sandbox for all keys
	trustingProxy = "trusting" // says yes to every resume
)

// serveWeakly is that proxy, before a caisson that serves.
func serveWeakly(how string) error {
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Stderr = os.Stderr
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, weakEnv+"=") {
			cmd.Env = append(cmd.Env, e)
		}
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGTERM)
	go func() {
		<-end
		_ = cmd.Process.Signal(syscall.SIGTERM)
	}()
	var at *url.URL
	key := ""
	for lines := bufio.NewScanner(out); key == "" && lines.Scan(); {
		if _, where, ok := strings.Cut(lines.Text(), " serves sandboxes at "); ok {
			if at, err = url.Parse(where); err != nil {
				return err
			}
		}
		if strings.Contains(lines.Text(), "E2B_API_KEY=") {
			b, err := os.ReadFile(filepath.Join(os.Args[slices.Index(os.Args, "--state")+1], "first-key"))
			if err != nil {
				return err
			}
			key = strings.TrimSpace(string(b))
		}
	}
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(at)
		if how == openProxy || how == sharedProxy {
			r.Out.Header.Del("Authorization")
			r.Out.Header.Set("X-API-Key", key)
		}
	}}
	var first sync.Once
	var answer []byte
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if how == deafProxy && r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, "/network") {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		path := r.Method + " " + r.URL.Path
		switch {
		case how == trustingProxy && strings.HasSuffix(path, "/resume"):
			w.WriteHeader(http.StatusOK)
			return
		case how == sharedProxy && path == "POST /v1/sandboxes":
			body := `{"name":"one"}`
			r.Body, r.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
		case how == sameProxy && strings.HasSuffix(path, "/exec"):
			first.Do(func() {
				rec := httptest.NewRecorder()
				proxy.ServeHTTP(rec, r)
				answer = rec.Body.Bytes()
			})
			w.Header().Set("Content-Type", "application/json")
			w.Write(answer)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	defer server.Close()
	fmt.Printf("caisson serves sandboxes at %s\n  export E2B_API_KEY=%s\n", server.URL, key)
	return cmd.Wait()
}
