// SPDX-License-Identifier: Apache-2.0

package microvm

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/caisson-run/caisson/sandbox"
)

// fcAPI speaks Firecracker's API: JSON over HTTP on a socket that Firecracker makes
// (src/firecracker/swagger/firecracker.yaml of its sources). Like QEMU it may be in the
// hands of code that broke out of its machine: what it says is bounded in size and time,
// and believed in nothing that protects the host.
type fcAPI struct {
	client *http.Client
}

const (
	maxFCAnswer = 64 << 10 // bytes, its header alone too
	fcTimeout   = time.Minute
)

// newFCAPI speaks over connections that dial makes.
func newFCAPI(dial func(ctx context.Context) (net.Conn, error)) *fcAPI {
	return &fcAPI{client: &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			DialContext:            func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) },
			MaxResponseHeaderBytes: maxFCAnswer, DisableCompression: true, DisableKeepAlives: true,
		},
	}}
}

func (a *fcAPI) close() { a.client.CloseIdleConnections() }

// errNotThere is of a socket that is not there yet.
var errNotThere = errors.New("it does not listen yet")

// errSilent is of what was not answered within its time.
var errSilent = errors.New("no answer from Firecracker")

// refusal is an answer that is a fault.
type refusal struct {
	status int
	fault  string // as it was said
}

// Error implements error.
func (r *refusal) Error() string {
	return fmt.Sprintf("Firecracker says %d, %s", r.status, said(r.fault))
}

// call asks once. What is not nil is sent as JSON, and the answer is read into answer.
func (a *fcAPI) call(ctx context.Context, method, path string, what, answer any) error {
	return a.callWithin(ctx, fcTimeout, method, path, what, answer)
}

// callWithin is call, for what takes longer.
func (a *fcAPI) callWithin(ctx context.Context, limit time.Duration, method, path string, what, answer any) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errSilent)
	defer cancel()
	var body io.Reader
	if what != nil {
		b, err := json.Marshal(what)
		if err != nil {
			return err
		}
		body = bytes.NewReader(b)
	}
	r, err := http.NewRequestWithContext(ctx, method, "http://localhost"+path, body)
	if err != nil {
		return err
	}
	r.Header.Set("User-Agent", "caisson")
	r.Header.Set("Accept", "application/json")
	if what != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	res, err := a.client.Do(r)
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(io.LimitReader(res.Body, maxFCAnswer+1))
	switch {
	case err != nil && ctx.Err() != nil:
		return fmt.Errorf("%s %s: %w", method, path, context.Cause(ctx))
	case err != nil:
		return fmt.Errorf("%s %s: %w", method, path, err)
	case len(b) > maxFCAnswer:
		return fmt.Errorf("%s %s: Firecracker's answer is too long", method, path)
	case res.StatusCode != http.StatusOK && res.StatusCode != http.StatusNoContent:
		return fmt.Errorf("%s %s: %w", method, path, &refusal{res.StatusCode, fault(b)})
	case answer != nil:
		if json.Unmarshal(b, answer) != nil {
			return fmt.Errorf("%s %s: Firecracker answers nonsense", method, path)
		}
	}
	return nil
}

// fault is what an answer complains of.
func fault(b []byte) string {
	var f struct {
		Message string `json:"fault_message"`
	}
	if json.Unmarshal(b, &f) == nil && f.Message != "" {
		return f.Message
	}
	return string(b)
}

func (a *fcAPI) put(ctx context.Context, path string, what any) error {
	return a.call(ctx, http.MethodPut, path, what, nil)
}

// What Firecracker is told, as its API calls it.
type (
	fcMachine struct {
		Processors int   `json:"vcpu_count"`
		Memory     int64 `json:"mem_size_mib"`
	}
	fcBoot struct {
		Kernel    string `json:"kernel_image_path"`
		Initrd    string `json:"initrd_path"`
		Arguments string `json:"boot_args"`
	}
	fcDrive struct {
		ID       string  `json:"drive_id"`
		File     string  `json:"path_on_host"`
		Root     bool    `json:"is_root_device"`
		ReadOnly bool    `json:"is_read_only"`
		Rate     *fcRate `json:"rate_limiter,omitempty"`
	}
	// fcDriveRate is what a drive has from there on.
	fcDriveRate struct {
		ID   string `json:"drive_id"`
		Rate fcRate `json:"rate_limiter"`
	}
	// fcRate is how much a drive does, in both directions together.
	fcRate struct {
		Bandwidth fcBucket `json:"bandwidth"`
		Ops       fcBucket `json:"ops"`
	}
	// fcBucket holds Size bytes or operations, and is full again after Refill milliseconds. One of 0 is no bound.
	fcBucket struct {
		Size   int64 `json:"size"`
		Refill int64 `json:"refill_time"`
	}
	fcSnapshot struct {
		Type    string `json:"snapshot_type"`
		Devices string `json:"snapshot_path"`
		Memory  string `json:"mem_file_path"`
	}
	fcLoad struct {
		Devices string   `json:"snapshot_path"`
		Memory  fcMemory `json:"mem_backend"`
		Resume  bool     `json:"resume_vm"`
	}
	fcMemory struct {
		Type string `json:"backend_type"`
		Path string `json:"backend_path"`
	}
	fcNetwork struct {
		ID     string `json:"iface_id"`
		Device string `json:"host_dev_name"`
		MAC    string `json:"guest_mac"`
	}
	fcVsock struct {
		CID    uint32 `json:"guest_cid"`
		Socket string `json:"uds_path"`
	}
	fcAction struct {
		Type string `json:"action_type"`
	}
	fcState struct {
		State string `json:"state"`
	}
)

// oldestFirecracker has ACPI (since 1.8), without which the kernels of distributions find no
// device, and a vsock that is right with guests of Linux 6.17 (its issue 5485).
var oldestFirecracker = [2]int{1, 14}

var fcVersion = regexp.MustCompile(`^v?([0-9]{1,4})\.([0-9]{1,4})\.[0-9]{1,4}`)

// checkVersion refuses a Firecracker that is too old, and all of 1.16: a vsock of theirs is
// dead once the machine was paused (its issue 6100), and with it the channel. That is mended
// on Firecracker's main alone.
func (a *fcAPI) checkVersion(ctx context.Context) error {
	var v struct {
		Version string `json:"firecracker_version"`
	}
	if err := a.call(ctx, http.MethodGet, "/version", nil, &v); err != nil {
		return err
	}
	m := fcVersion.FindStringSubmatch(strings.TrimSpace(v.Version))
	if m == nil {
		return fmt.Errorf("the version of Firecracker is %s, it says", said(v.Version))
	}
	major, _ := strconv.Atoi(m[1])
	minor, _ := strconv.Atoi(m[2])
	if major == 1 && minor == 16 {
		return &sandbox.Error{Op: "start sandbox", Kind: sandbox.ErrUnsupported, Problem: "this Firecracker is " + said(v.Version) + ", whose vsock does not go on after a pause (its issue 6100)",
			Hint: "get another version, 1.15 say, or take QEMU: --isolation microvm:qemu"}
	}
	if major < oldestFirecracker[0] || major == oldestFirecracker[0] && minor < oldestFirecracker[1] {
		return &sandbox.Error{Op: "start sandbox", Kind: sandbox.ErrUnsupported, Problem: "this Firecracker is " + said(v.Version) + ", and 1.14 is the first that is right with newer guests (its issue 5485)",
			Hint: "get a newer one (github.com/firecracker-microvm/firecracker/releases), or take QEMU: --isolation microvm:qemu"}
	}
	return nil
}
