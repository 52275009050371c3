// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bufio"
	"bytes"
	"fmt"
	"math"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/caisson-run/caisson/guest/wire"
	"github.com/caisson-run/caisson/internal/envd"
)

// maxDrift is how far the clock may be off before resume says so.
const maxDrift = time.Second

// serveResume takes what the host says about the sandbox. The clock is the
// level's to set: where it is not, it is the host's own.
func (a *Agent) serveResume(_ *http.Request, q *wire.ResumeRequest) (*wire.ResumeAnswer, error) {
	if err := q.Check(); err != nil {
		return nil, &connectError{codeInvalid, err.Error()}
	}
	answer := &wire.ResumeAnswer{Failed: map[string]string{}}
	if q.Time != 0 {
		if d := time.Since(time.Unix(0, q.Time)); d > maxDrift || d < -maxDrift {
			answer.Failed["time"] = fmt.Sprintf("the clock inside is %v ahead", d)
		}
	}
	if len(q.Entropy) > 0 {
		if err := stir(q.Entropy); err != nil {
			answer.Failed["entropy"] = err.Error()
		}
	}
	if q.Hostname != "" {
		if now, err := os.Hostname(); err != nil || now != q.Hostname {
			if err := syscall.Sethostname([]byte(q.Hostname)); err != nil {
				answer.Failed["hostname"] = err.Error()
			}
		}
	}
	a.settings.set(q)
	a.contexts.Reseed()
	return answer, nil
}

// stir adds to the kernel's pool, which copies of a sandbox would share.
func stir(b []byte) error {
	f, err := os.OpenFile("/dev/urandom", os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.Write(b)
	return err
}

func (a *Agent) serveMetrics(w http.ResponseWriter, _ *http.Request) {
	m, err := a.clock.metrics()
	if err != nil {
		writeError(w, asConnect(err))
		return
	}
	w.Header().Set("Cache-Control", "no-store")
	writeJSON(w, http.StatusOK, m)
}

// clock remembers the processors' times of the last answer.
type clock struct {
	mu          sync.Mutex
	busy, total uint64
}

// metrics reads what the kernel inside counts. What a level's kernel counts of
// its own is in Instance.Usage.
func (c *clock) metrics() (*envd.Metrics, error) {
	mem, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return nil, err
	}
	kib := parseMeminfo(mem)
	var disk syscall.Statfs_t
	if err := syscall.Statfs("/", &disk); err != nil {
		return nil, err
	}
	m := &envd.Metrics{
		Timestamp: time.Now().Unix(),
		CPUCount:  uint32(runtime.NumCPU()),
		CPUUsed:   c.used(),
		MemTotal:  kib["MemTotal"] << 10,
		MemCache:  (kib["Cached"] + kib["SReclaimable"]) << 10,
		DiskTotal: disk.Blocks * uint64(disk.Bsize),
		DiskUsed:  (disk.Blocks - min(disk.Bavail, disk.Blocks)) * uint64(disk.Bsize),
	}
	m.MemUsed = m.MemTotal - min(kib["MemAvailable"]<<10, m.MemTotal)
	m.MemTotalMiB, m.MemUsedMiB = m.MemTotal>>20, m.MemUsed>>20
	return m, nil
}

// used is how busy all processors together were since the last call, in percent
// with two places.
func (c *clock) used() float32 {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0
	}
	busy, total := parseStatTimes(b)
	c.mu.Lock()
	defer c.mu.Unlock()
	b0, t0 := c.busy, c.total
	c.busy, c.total = busy, total
	if total <= t0 || busy < b0 {
		return 0
	}
	return float32(math.Round(1e4*float64(busy-b0)/float64(total-t0)) / 100)
}

// parseStatTimes adds up the first line of /proc/stat: user nice system idle
// iowait irq softirq steal; what follows is counted in user already.
func parseStatTimes(b []byte) (busy, total uint64) {
	line, _, _ := bytes.Cut(b, []byte("\n"))
	f := bytes.Fields(line)
	for i, v := range f[min(1, len(f)):min(9, len(f))] {
		n, _ := strconv.ParseUint(string(v), 10, 64)
		total += n
		if i != 3 && i != 4 { // idle, iowait
			busy += n
		}
	}
	return busy, total
}

// parseMeminfo reads "Name:  number kB" lines.
func parseMeminfo(b []byte) map[string]uint64 {
	all := map[string]uint64{}
	for lines := bufio.NewScanner(bytes.NewReader(b)); lines.Scan(); {
		name, rest, _ := strings.Cut(lines.Text(), ":")
		if f := strings.Fields(rest); len(f) > 0 {
			all[name], _ = strconv.ParseUint(f[0], 10, 64)
		}
	}
	return all
}
