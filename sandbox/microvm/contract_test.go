// SPDX-License-Identifier: Apache-2.0

//go:build linux

package microvm_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi2"
	"github.com/getkin/kin-openapi/openapi2conv"
	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/legacy"
	"go.yaml.in/yaml/v4"

	"github.com/caisson-run/caisson/sandbox/microvm"
	"github.com/caisson-run/caisson/sandbox/microvm/firecrackertest"
)

// contract is Firecracker's own description of its API. Keys that it does not name are
// refused, as Firecracker does.
func contract(t *testing.T) routers.Router {
	t.Helper()
	b, err := os.ReadFile("testdata/firecracker.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var plain any
	if err := yaml.Unmarshal(b, &plain); err != nil {
		t.Fatal(err)
	}
	if b, err = json.Marshal(named(plain)); err != nil {
		t.Fatal(err)
	}
	var two openapi2.T
	if err := json.Unmarshal(b, &two); err != nil {
		t.Fatal(err)
	}
	three, err := openapi2conv.ToV3(&two)
	if err != nil {
		t.Fatal(err)
	}
	closed := false
	for _, s := range three.Components.Schemas {
		if s.Value != nil && len(s.Value.Properties) > 0 {
			s.Value.AdditionalProperties = openapi3.AdditionalProperties{Has: &closed}
		}
	}
	three.Servers = nil
	r, err := legacy.NewRouter(three)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// named has the keys of maps be words, as in JSON: statuses of HTTP are numbers in YAML.
func named(v any) any {
	switch v := v.(type) {
	case []any:
		for i := range v {
			v[i] = named(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = named(v[k])
		}
	case map[any]any:
		out := map[string]any{}
		for k, x := range v {
			out[fmt.Sprint(k)] = named(x)
		}
		return out
	}
	return v
}

// check holds a request against the contract.
func check(r routers.Router) func(*http.Request, []byte) error {
	return func(asked *http.Request, body []byte) error {
		route, params, err := r.FindRoute(asked)
		if err != nil {
			return err
		}
		again := asked.Clone(asked.Context())
		again.Body = http.NoBody
		if len(body) > 0 {
			again.Body, again.ContentLength = readCloser{bytes.NewReader(body)}, int64(len(body))
		}
		return openapi3filter.ValidateRequest(asked.Context(), &openapi3filter.RequestValidationInput{Request: again, Route: route, PathParams: params})
	}
}

type readCloser struct{ *bytes.Reader }

func (readCloser) Close() error { return nil }

// serve has h listen on a socket until the test ends.
func serve(t *testing.T, h http.Handler) func(context.Context) (net.Conn, error) {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: h}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() { s.Close(); <-served })
	return func(ctx context.Context) (net.Conn, error) { return (&net.Dialer{}).DialContext(ctx, "unix", socket) }
}

// Every request that makes and starts a machine, stops it and has it go on is one that
// Firecracker takes, where it takes it.
func TestContract(t *testing.T) {
	api := &firecrackertest.API{Version: "1.15.0", Check: check(contract(t))}
	dial := serve(t, api)
	if err := microvm.StartFirecracker(t.Context(), dial); err != nil {
		t.Fatal(err)
	}
	m, runs := api.Asked()
	if !runs || m.Config.Memory != 300 || m.Config.Processors != 2 || len(m.Drives) != 3 || m.Drives[0].ID != "root" || len(m.Cards) != 1 || m.Vsock.CID < 3 || !m.Entropy {
		t.Errorf("what was asked for: %+v, %v", m, runs)
	}
	for _, d := range m.Drives {
		if d.ReadOnly == (d.ID == "scratch") {
			t.Errorf("what can be written to: %+v", d)
		}
	}
	for _, want := range []string{"console=ttyS0", "reboot=k", "caisson.channel=vsock", "caisson.disks=root,copies,scratch"} {
		if !strings.Contains(" "+m.Boot.Arguments+" ", " "+want+" ") {
			t.Errorf("the command line lacks %s: %s", want, m.Boot.Arguments)
		}
	}
	if strings.Contains(m.Boot.Arguments, "nomodule") {
		t.Errorf("a kernel that loads no driver: %s", m.Boot.Arguments)
	}
	if err := microvm.PauseFirecracker(t.Context(), dial, 2); err != nil {
		t.Error(err)
	}
	if err := microvm.StartFirecracker(t.Context(), dial); err == nil || !strings.Contains(err.Error(), "after starting") {
		t.Errorf("a machine was made twice: %v", err)
	}
}

// The contract refuses what Firecracker would: without that the test above says nothing.
func TestContractRefuses(t *testing.T) {
	api := &firecrackertest.API{Version: "1.15.0", Check: check(contract(t))}
	dial := serve(t, api)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) }}}
	for _, tt := range []struct{ method, path, body string }{
		{"PUT", "/machine-config", `{"vcpu_count": 64, "mem_size_mib": 256}`},
		{"PUT", "/machine-config", `{"vcpu_count": 1}`},
		{"PUT", "/machine-config", `{"vcpu_count": "1", "mem_size_mib": 256}`},
		{"PUT", "/machine-config", `{"vcpu_count": 1, "mem_size_mib": 256, "nested": true}`},
		{"PUT", "/boot-source", `{"boot_args": "quiet"}`},
		{"PUT", "/drives/root", `{"drive_id": "root"}`},
		{"PUT", "/drives/root", `{"drive_id": "other", "path_on_host": "/a", "is_root_device": false}`},
		{"PUT", "/network-interfaces/net", `{"iface_id": "net"}`},
		{"PUT", "/vsock", `{"guest_cid": 2, "uds_path": "/v"}`},
		{"PUT", "/vsock", `{"guest_cid": 3}`},
		{"PUT", "/actions", `{"action_type": "Explode"}`},
		{"PUT", "/actions", `{"action_type": "InstanceStart"}`}, // without a kernel
		{"PATCH", "/vm", `{"state": "paused"}`},
		{"PATCH", "/vm", `{"state": "Paused"}`}, // before it runs
		{"PUT", "/vm", `{"state": "Paused"}`},
		{"PUT", "/nothing", `{}`},
	} {
		r, err := http.NewRequestWithContext(t.Context(), tt.method, "http://localhost"+tt.path, strings.NewReader(tt.body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		res, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != http.StatusBadRequest {
			t.Errorf("%s: %d", fmt.Sprint(tt), res.StatusCode)
		}
	}
}
