// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"context"
	"crypto/rand"
	"math"
	"net/http"
	"time"

	"github.com/caisson-run/caisson/guest/wire"
	"github.com/caisson-run/caisson/internal/envd"
	"github.com/caisson-run/caisson/sandbox"
)

// Resume is what the agent is told about its sandbox: at the beginning, and
// again when it was restored or is a copy of another. What is zero stays as it
// is.
type Resume struct {
	Hostname string            // at most 64 bytes
	Env      map[string]string // replaces the variables of every process that is started from now on
	Dir      *string           // where processes start that do not say; "" is the user's home
}

// Resume tells the agent about its sandbox, and gives the kernel inside fresh
// entropy. The answer says what could not be done, for people, by the name of
// the field, "time" and "entropy" among them: a clock is the level's to set.
func (c *Client) Resume(ctx context.Context, r Resume) (failed map[string]string, _ error) {
	q := wire.ResumeRequest{Time: time.Now().UnixNano(), Entropy: make([]byte, 64), Hostname: r.Hostname, Env: r.Env, Dir: r.Dir}
	rand.Read(q.Entropy)
	if err := q.Check(); err != nil {
		return nil, &sandbox.Error{Op: "resume", Kind: sandbox.ErrInvalid, Problem: err.Error()}
	}
	var a wire.ResumeAnswer
	if err := c.call(ctx, "resume", wire.PathResume, q, &a); err != nil {
		return nil, err
	}
	failed = map[string]string{}
	for _, name := range []string{"time", "entropy", "hostname"} {
		if why := a.Failed[name]; why != "" {
			failed[name] = printable(why)
		}
	}
	return failed, nil
}

// Metrics asks what the sandbox uses.
func (c *Client) Metrics(ctx context.Context) (sandbox.Metrics, error) {
	var m envd.Metrics
	if err := c.get(ctx, "read metrics", envd.PathMetrics, &m); err != nil {
		return sandbox.Metrics{}, err
	}
	percent := float64(m.CPUUsed)
	if math.IsNaN(percent) || percent < 0 {
		percent = 0
	}
	return sandbox.Metrics{
		Time: time.Unix(m.Timestamp, 0), CPUs: m.CPUCount, CPUPercent: min(percent, 100),
		MemTotal: m.MemTotal, MemUsed: m.MemUsed, MemCache: m.MemCache,
		DiskTotal: m.DiskTotal, DiskUsed: m.DiskUsed,
	}, nil
}

// Env is the sandbox's own variables, as Resume set them.
func (c *Client) Env(ctx context.Context) (map[string]string, error) {
	env := map[string]string{}
	return env, c.get(ctx, "read the environment", envd.PathEnvs, &env)
}

// get asks for one JSON message.
func (c *Client) get(ctx context.Context, op, path string, a any) error {
	ctx, cancel := context.WithTimeout(ctx, c.options.CallTimeout)
	defer cancel()
	resp, release, err := c.roundTrip(ctx, http.MethodGet, path, nil, "")
	if err != nil {
		return c.lost(op, err)
	}
	defer release()
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return answeredError(op, resp)
	}
	return c.decode(op, resp.Body, a)
}
