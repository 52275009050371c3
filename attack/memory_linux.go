// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// memoryDaemon is a second caisson for the cases about kept memory; else why there is none.
func (s *suite) memoryDaemon(ctx context.Context, args ...string) (*daemon, *finding) {
	if s.Again == nil {
		return nil, &finding{verdict: NotApplicable, reason: "this program does not start a second caisson"}
	}
	d, err := s.serve(ctx, "version: 1\nisolation: "+s.Isolation+"\n", args...)
	if err != nil {
		f := unable(err)
		return nil, &f
	}
	return d, nil
}

// sh runs a line in a sandbox of the daemon's, and says what it writes.
func (d *daemon) sh(ctx context.Context, id, line string) (string, error) {
	var res struct {
		Stdout string `json:"stdout"`
	}
	err := d.ask(ctx, "POST", "/v1/sandboxes/"+id+"/exec", map[string]any{"shell": line}, &res)
	return strings.TrimSpace(res.Stdout), err
}

// lacks says that a level has not what a case needs.
func lacks(err error) bool { return strings.Contains(err.Error(), ": 501 ") }

// siblings has two copies of a sandbox draw random numbers, and look at the clock.
func (s *suite) siblings(ctx context.Context) finding {
	d, not := s.memoryDaemon(ctx)
	if not != nil {
		return *not
	}
	defer d.stop()
	id, err := d.create(ctx, nil)
	if err != nil {
		return unable(err)
	}
	var copies struct {
		Forks []struct {
			Sandbox *struct {
				ID string `json:"id"`
			} `json:"sandbox"`
		} `json:"forks"`
	}
	if err := d.ask(ctx, "POST", "/v1/sandboxes/"+id+"/fork", map[string]any{"count": 2}, &copies); err != nil {
		if lacks(err) {
			return finding{verdict: NotApplicable, reason: "this level makes no copies of a sandbox"}
		}
		return unable(err)
	}
	all := []string{id}
	for _, f := range copies.Forks {
		if f.Sandbox != nil {
			all = append(all, f.Sandbox.ID)
		}
	}
	drawn := map[string]bool{}
	for _, id := range all {
		before := time.Now()
		out, err := d.sh(ctx, id, "cat /proc/sys/kernel/random/uuid; head -c 32 /dev/urandom | od -An -v -tx1 | tr -d ' \\n'; echo; date +%s")
		if err != nil {
			return unable(err)
		}
		lines := strings.Split(out, "\n")
		if len(lines) != 3 || len(all) != 3 {
			return finding{verdict: Unclear, reason: "the copies did not draw"}
		}
		for _, l := range lines[:2] {
			if drawn[l] {
				return breach("two copies of one sandbox draw the same: %.80q", l)
			}
			drawn[l] = true
		}
		at, _ := strconv.ParseInt(lines[2], 10, 64)
		if clock := time.Unix(at, 0); clock.Before(before.Add(-2*time.Second)) || clock.After(time.Now().Add(2*time.Second)) {
			return breach("a copy's clock is at %s, and the host's at %s", clock, time.Now())
		}
	}
	return pass()
}

// leftovers has a key leave something in sandboxes that were kept ready, and another look for
// it in its own.
func (s *suite) leftovers(ctx context.Context) finding {
	d, not := s.memoryDaemon(ctx, "--pool", "2")
	if not != nil {
		return *not
	}
	defer d.stop()
	out, err := s.Again("keys", "create", "--name", "second", "--state", d.state, "--json").Output()
	var made struct {
		Key string `json:"key"`
	}
	if err == nil {
		err = json.Unmarshal(out, &made)
	}
	if err != nil || made.Key == "" {
		return finding{verdict: Unclear, reason: "there is no second key"}
	}
	other := *d
	other.key = made.Key
	canary := s.token("V02")
	const places = "/tmp /home /dev/shm /var/tmp"
	ready := false
	for n := 0; n < 3 || !ready && n < maxRounds; n++ {
		id, err := d.create(ctx, nil)
		if err != nil {
			return unable(err)
		}
		if _, err := d.sh(ctx, id, "for d in "+places+" ~; do echo "+canary+" > $d/left 2>/dev/null; done; true"); err != nil {
			return unable(err)
		}
		if here, err := d.sh(ctx, id, "cat ~/left"); err != nil || here != canary {
			return finding{verdict: Unclear, reason: "nothing could be left"}
		}
		asked := time.Now()
		theirs, err := other.create(ctx, nil)
		if err != nil {
			return unable(err)
		}
		found, err := other.sh(ctx, theirs, "cat ~/left; for d in "+places+"; do cat $d/left; done 2>/dev/null; cat /proc/uptime")
		if err != nil {
			return unable(err)
		}
		if strings.Contains(found, canary) {
			return breach("a sandbox that was kept ready has what another key left")
		}
		ready = ready || older(found, time.Since(asked))
		if err := errors.Join(d.delete(ctx, id), other.delete(ctx, theirs)); err != nil {
			return unable(err)
		}
	}
	if !ready {
		return finding{verdict: Unclear, reason: "no sandbox was kept ready"}
	}
	return pass()
}

// maxRounds is how often a sandbox is asked for that was kept ready: making one takes longer.
const maxRounds = 12

// older says whether a kernel whose uptime ends what was said has run for longer than that. The
// host's has, on levels without one of their own.
func older(said string, than time.Duration) bool {
	words := strings.Fields(said)
	if len(words) < 2 {
		return false
	}
	up, err := strconv.ParseFloat(words[len(words)-2], 64)
	return err == nil && up > than.Seconds()
}

func (d *daemon) delete(ctx context.Context, id string) error {
	return d.ask(ctx, "DELETE", "/v1/sandboxes/"+id, nil, nil)
}

// tampered changes a byte of memory that was kept, and has another key ask for it.
func (s *suite) tampered(ctx context.Context) finding {
	d, not := s.memoryDaemon(ctx)
	if not != nil {
		return *not
	}
	defer d.stop()
	id, err := d.create(ctx, nil)
	if err != nil {
		return unable(err)
	}
	const bootID = "cat /proc/sys/kernel/random/boot_id"
	first, err := d.sh(ctx, id, bootID)
	if err != nil {
		return unable(err)
	}
	var paused struct {
		Kept string `json:"kept"`
	}
	if err := d.ask(ctx, "POST", "/v1/sandboxes/"+id+"/pause", nil, &paused); err != nil {
		if lacks(err) {
			return finding{verdict: NotApplicable, reason: "this level keeps no memory here"}
		}
		return unable(err)
	}
	if paused.Kept != "disk" {
		return finding{verdict: NotApplicable, reason: "this level keeps no memory on the disk"}
	}
	list := d.memories()
	if len(list) == 0 {
		return finding{verdict: Unclear, reason: "the memory was not found"}
	}
	for _, name := range list {
		info, err := os.Stat(name)
		if err != nil {
			return unable(err)
		}
		if info.Mode().Perm()&0o077 != 0 {
			return breach("others may read kept memory: %s is %s", filepath.Base(name), info.Mode())
		}
	}
	if err := flip(list[len(list)-1]); err != nil {
		return unable(err)
	}
	if err := d.ask(ctx, "POST", "/v1/sandboxes/"+id+"/resume", nil, nil); err != nil {
		return pass()
	}
	// It may begin anew with its files, which lie beside its memory.
	if now, err := d.sh(ctx, id, bootID); err != nil || now == first {
		return breach("memory that was changed on the disk is gone on with")
	}
	return pass()
}

// memories are the files of kept memory, as gVisor and virtual machines have them.
func (d *daemon) memories() (all []string) {
	for _, name := range []string{"*.img", "memory"} {
		list, _ := filepath.Glob(filepath.Join(d.state, "kept", "*", name))
		all = append(all, list...)
	}
	slices.Sort(all)
	return all
}

// flip changes the byte in the middle of a file.
func flip(name string) error {
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	b := make([]byte, 1)
	if _, err := f.ReadAt(b, info.Size()/2); err != nil {
		return err
	}
	b[0] ^= 1
	_, err = f.WriteAt(b, info.Size()/2)
	return err
}
