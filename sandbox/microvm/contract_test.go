// SPDX-License-Identifier: Apache-2.0

//go:build linux

package microvm_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
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
	for _, d := range m.Drives { // three parts: room for a request of 4 MiB, or a tenth of a second
		if want := (firecrackertest.RateLimiter{Bandwidth: firecrackertest.Bucket{Size: 4 << 20, Refill: 4000}, Ops: firecrackertest.Bucket{Size: 33, Refill: 99}}); d.Rate != want {
			t.Errorf("how fast it is: %+v", d)
		}
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
		{"PUT", "/drives/root", `{"drive_id": "root", "path_on_host": "/a", "is_root_device": false, "rate_limiter": {"bandwidth": {"size": 1}}}`},
		{"PATCH", "/drives/root", `{"drive_id": "root"}`},                             // before it runs
		{"PUT", "/snapshot/create", `{"snapshot_path": "/a", "mem_file_path": "/b"}`}, // likewise
		{"PUT", "/snapshot/create", `{"snapshot_path": "/a"}`},
		{"PUT", "/snapshot/load", `{"mem_file_path": "/b"}`},
		{"PUT", "/snapshot/load", `{"snapshot_path": "/a"}`},
		{"PUT", "/snapshot/load", `{"snapshot_path": "/a", "mem_backend": {"backend_type": "Net", "backend_path": "/b"}}`},
		{"PUT", "/snapshot/load", `{"snapshot_path": "/a", "mem_backend": {"backend_type": "File", "backend_path": "/b"}, "paused": true}`},
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

// So is every request that writes a machine down, and has another go on from that.
func TestSnapshotContract(t *testing.T) {
	var made []string
	api := &firecrackertest.API{
		Version: "1.15.0", Check: check(contract(t)),
		Create: func(_ *firecrackertest.Machine, devices, memory string) error {
			made = append(made, devices, memory)
			return nil
		},
	}
	dial := serve(t, api)
	if err := microvm.StartFirecracker(t.Context(), dial); err != nil {
		t.Fatal(err)
	}
	memory, dir := savePlace(t, []byte("devices"))
	got, err := microvm.SaveFirecracker(t.Context(), dial, obedient(t), memory, dir, io.Discard)
	if err != nil || string(got) != "devices" || fmt.Sprint(made) != "[/run/vm/devices /run/memory]" {
		t.Errorf("written down: %q, %q, %v", got, made, err)
	}

	of := firecrackertest.Machine{}
	for _, id := range []string{"root", "copies", "scratch"} {
		of.Drives = append(of.Drives, firecrackertest.Drive{ID: id, Rate: firecrackertest.RateLimiter{Ops: firecrackertest.Bucket{Size: 1, Refill: 1}}})
	}
	var from []string
	api = &firecrackertest.API{Version: "1.15.0", Check: check(contract(t)), Load: func(devices, memory string) (*firecrackertest.Machine, error) {
		from = append(from, devices, memory)
		m := of
		m.Drives = slices.Clone(of.Drives)
		return &m, nil
	}}
	dial = serve(t, api)
	if err := microvm.LoadFirecracker(t.Context(), dial, strings.NewReader("memory"), 3000, 0); err != nil {
		t.Fatal(err)
	}
	m, runs := api.Asked()
	want := firecrackertest.RateLimiter{Bandwidth: firecrackertest.Bucket{Size: 4 << 20, Refill: 4 << 20}}
	if !runs || fmt.Sprint(from) != "[/run/written.devices /run/written.memory]" || len(m.Drives) != 3 || m.Drives[2].Rate != want {
		t.Errorf("it goes on from %q, with %+v", from, m)
	}
	if err := microvm.LoadFirecracker(t.Context(), dial, strings.NewReader("memory"), 0, 0); err == nil || !strings.Contains(err.Error(), "after starting") {
		t.Errorf("over one that runs: %v", err)
	}
}

// The state machine of snapshots refuses what Firecracker does.
func TestSnapshotStates(t *testing.T) {
	const create, load = `{"snapshot_path": "/a", "mem_file_path": "/b"}`, `{"snapshot_path": "/a", "mem_backend": {"backend_type": "File", "backend_path": "/b"}}`
	for name, tt := range map[string]struct {
		api   *firecrackertest.API
		start bool
		asked [][3]string // the last is refused
		want  string
	}{
		"of one that runs":        {&firecrackertest.API{}, true, [][3]string{{"PUT", "/snapshot/create", create}}, "save/restore unavailable while running"},
		"of one that runs again":  {&firecrackertest.API{}, true, [][3]string{{"PATCH", "/vm", `{"state": "Paused"}`}, {"PATCH", "/vm", `{"state": "Resumed"}`}, {"PUT", "/snapshot/create", create}}, "unavailable while running"},
		"a part of it":            {&firecrackertest.API{}, true, [][3]string{{"PATCH", "/vm", `{"state": "Paused"}`}, {"PUT", "/snapshot/create", create}, {"PUT", "/snapshot/create", `{"snapshot_type": "Diff", "snapshot_path": "/a", "mem_file_path": "/b"}`}}, "no snapshot of the type"},
		"into one that runs":      {&firecrackertest.API{}, true, [][3]string{{"PUT", "/snapshot/load", load}}, "after starting"},
		"into one that is made":   {&firecrackertest.API{}, false, [][3]string{{"PUT", "/machine-config", `{"vcpu_count": 1, "mem_size_mib": 256}`}, {"PUT", "/snapshot/load", load}}, "not allowed after configuring boot-specific resources"},
		"into one that is loaded": {&firecrackertest.API{}, false, [][3]string{{"PUT", "/snapshot/load", load}, {"PUT", "/snapshot/load", load}}, "after starting"},
		"of one that was loaded":  {&firecrackertest.API{}, false, [][3]string{{"PUT", "/snapshot/load", load}, {"PUT", "/snapshot/create", create}, {"PATCH", "/vm", `{"state": "Resumed"}`}, {"PUT", "/snapshot/create", create}}, "unavailable while running"},
		"after one that failed": {&firecrackertest.API{Load: func(string, string) (*firecrackertest.Machine, error) { return nil, errors.New("no") }}, false,
			[][3]string{{"PUT", "/snapshot/load", load}}, "Failed to restore from snapshot"},
	} {
		t.Run(name, func(t *testing.T) {
			tt.api.Version, tt.api.Check = "1.15.0", check(contract(t))
			dial := serve(t, tt.api)
			if tt.start {
				if err := microvm.StartFirecracker(t.Context(), dial); err != nil {
					t.Fatal(err)
				}
			}
			client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) }}}
			for i, a := range tt.asked {
				r, err := http.NewRequestWithContext(t.Context(), a[0], "http://localhost"+a[1], strings.NewReader(a[2]))
				if err != nil {
					t.Fatal(err)
				}
				r.Header.Set("Content-Type", "application/json")
				res, err := client.Do(r)
				if err != nil {
					t.Fatal(err)
				}
				said, err := io.ReadAll(res.Body)
				res.Body.Close()
				refused := res.StatusCode == http.StatusBadRequest
				if last := i == len(tt.asked)-1; err != nil || refused != last || last && !strings.Contains(string(said), tt.want) {
					t.Errorf("%s: %d, %s, %v", a, res.StatusCode, said, err)
				}
			}
		})
	}
}

// savePlace is what Firecracker has written: memory of one MiB, and a directory of its own.
func savePlace(t *testing.T, devices []byte) (memory, dir *os.File) {
	t.Helper()
	at := t.TempDir()
	memory, err := os.Create(filepath.Join(t.TempDir(), "memory"))
	if err == nil {
		err = memory.Truncate(1 << 20)
	}
	if err == nil && devices != nil {
		err = os.WriteFile(filepath.Join(at, "devices"), devices, 0o600)
	}
	if err == nil {
		dir, err = os.Open(at)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { memory.Close(); dir.Close() })
	return memory, dir
}
