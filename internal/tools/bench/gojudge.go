// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"time"
)

// judgeModule is a server that runs programs in containers which it has made ahead
// and uses again. Its module is no dependency of ours: it is built where it lies.
const judgeModule, judgeVersion = "github.com/criyle/go-judge", "v1.12.2"

// buildJudge makes its server, as its authors build it: with CGO_ENABLED=0, and so
// without a system call filter.
func buildJudge(ctx context.Context, path string) error {
	if have, err := buildinfo.ReadFile(path); err == nil && have.GoVersion == runtime.Version() {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	got, err := exec.CommandContext(ctx, "go", "mod", "download", "-json", judgeModule+"@"+judgeVersion).Output()
	var module struct{ Dir, Error string }
	if jerr := json.Unmarshal(got, &module); jerr != nil || module.Dir == "" {
		return fmt.Errorf("getting %s %s: %w", judgeModule, judgeVersion, errors.Join(err, jerr, errors.New(module.Error)))
	}
	if path, err = filepath.Abs(path); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-ldflags", "-s -w", "-o", path, "./cmd/go-judge")
	cmd.Dir = module.Dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-mod=readonly")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building %s: %w\n%s", judgeModule, err, out)
	}
	return nil
}

// judge is a server of it that listens on loopback.
type judge struct {
	url  string
	cmd  *exec.Cmd
	body []byte // of a request
}

// judgeLimits are those of one program.
type judgeLimits struct {
	cpu            time.Duration
	memory, output int64 // bytes; output is of each stream
	processes      int
}

// judgeCall is a request for one run.
func judgeCall(argv []string, l judgeLimits) ([]byte, error) {
	return json.Marshal(map[string]any{"cmd": []any{map[string]any{
		"args": argv, "env": []string{"PATH=/usr/bin:/bin"},
		"files":    []any{map[string]any{"content": ""}, map[string]any{"name": "stdout", "max": l.output}, map[string]any{"name": "stderr", "max": l.output}},
		"cpuLimit": l.cpu, "clockLimit": 2 * time.Minute, "memoryLimit": l.memory, "procLimit": l.processes,
	}}})
}

// startJudge has so many containers ready, and asks for runs of argv.
func startJudge(ctx context.Context, path, dir string, containers int, argv []string) (*judge, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	address := l.Addr().String()
	l.Close()
	j := &judge{url: "http://" + address}
	if j.body, err = judgeCall(argv, judgeLimits{10 * time.Second, 256 << 20, 10240, 64}); err != nil {
		return nil, err
	}
	j.cmd = exec.CommandContext(ctx, path, "-http-addr", address, "-silent", "-pre-fork", fmt.Sprint(containers),
		"-parallelism", fmt.Sprint(containers), "-cgroup-prefix", judgeGroup)
	j.cmd.Dir = dir
	j.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	j.cmd.Cancel = func() error { return j.cmd.Process.Signal(syscall.SIGTERM) }
	j.cmd.WaitDelay = 10 * time.Second
	if err := j.cmd.Start(); err != nil {
		return nil, err
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if _, err = j.run(ctx); err == nil {
			return j, nil
		}
		if ctx.Err() != nil || time.Now().After(end) {
			return nil, errors.Join(err, j.stop())
		}
	}
}

// stop ends the server and removes its control groups, which it leaves behind.
func (j *judge) stop() error {
	_ = j.cmd.Process.Signal(syscall.SIGTERM)
	if err := j.cmd.Wait(); err != nil && j.cmd.ProcessState == nil {
		return err
	}
	var groups []string
	for _, base := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/*"} {
		tops, _ := filepath.Glob(filepath.Join(base, judgeGroup))
		for _, top := range tops {
			_ = filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
				if err == nil && d.IsDir() {
					groups = append(groups, path)
				}
				return nil
			})
		}
	}
	var errs []error
	for _, dir := range slices.Backward(groups) {
		errs = append(errs, os.Remove(dir))
	}
	return errors.Join(errs...)
}

const judgeGroup = "caisson-bench-judge"

// verdict is what it says of a run.
type verdict struct {
	Status     string
	ExitStatus int
	Time       time.Duration // of processors
	Files      map[string]string
}

// ask asks for one run.
func (j *judge) ask(ctx context.Context, body []byte) (*verdict, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, j.url+"/run", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(io.LimitReader(res.Body, 8<<20))
	if err != nil {
		return nil, err
	}
	var ended []*verdict
	if err := json.Unmarshal(b, &ended); err != nil || len(ended) != 1 || ended[0] == nil {
		return nil, fmt.Errorf("go-judge answers %d %.200q", res.StatusCode, b)
	}
	return ended[0], nil
}

// run asks for one run that has to go well.
func (j *judge) run(ctx context.Context) (took, error) {
	v, err := j.ask(ctx, j.body)
	if err == nil && v.Status != "Accepted" {
		err = fmt.Errorf("go-judge says %.200v", *v)
	}
	return took{}, err
}

// judgePath is where its server lies, built unless it was. It is absolute: it is built in its
// module's directory, and started in another.
func (s *stage) judgePath(ctx context.Context) (string, error) {
	path, err := filepath.Abs(filepath.Join(filepath.Dir(s.o.runsc), "go-judge-"+judgeVersion))
	if err == nil {
		err = buildJudge(ctx, path)
	}
	return path, err
}

// besideJudge is rate with go-judge on the other side. What it uses of the
// processors is another process's, and not in the table.
func (s *stage) besideJudge(goal string, argv ...string) bench {
	return bench{fmt.Sprintf("process level, driver, %q, runs per second of %d clients, beside go-judge", argv, clients), func(ctx context.Context) row {
		missing := func(err error) row {
			return row{goal: goal, who: s.users[0].name, notes: []string{fmt.Sprint("not measured: ", err)}}
		}
		path, err := s.judgePath(ctx)
		if err != nil {
			return missing(err)
		}
		l, end, err := s.level(ctx, argv)
		if err != nil {
			return missing(err)
		}
		defer end()
		j, err := startJudge(ctx, path, s.dir, clients, argv)
		if err != nil {
			return missing(err)
		}
		p := interleave(ctx, s.o.rounds, clocked(atOnceOf(l.run)), clocked(atOnceOf(j.run)))
		r := p.row(goal)
		r.who = s.users[0].name
		if len(p.ours) > 0 {
			r.ours, r.theirs = perSecond(p.ours), perSecond(p.theirs)
			r.ratio, r.cpu = fmt.Sprintf("%.2f (%.2f)", 1/p.ratio(), 1/p.paired()), ""
		}
		if err := j.stop(); err != nil {
			r.notes = append(r.notes, err.Error())
		}
		return r
	}}
}

// perSecond is how many runs there were.
func perSecond(t []took) string {
	return fmt.Sprintf("%.0f/s", clients*each/median(walls(t)).Seconds())
}
