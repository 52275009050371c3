// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session/persistent"
)

// profileFields are what a profile may say, in the order of the help.
var profileFields = []string{"sandboxes", "paused", "snapshots", "templates", "cpus", "memory", "disk", "template-size", "records", "timeout", "max-timeout"}

// profile reads "[NAME:]FIELD=VALUE,...": how much all sandboxes of a key have together,
// and how long one may live. What it does not say is the default's.
func profile(text string) (name string, p persistent.Profile, err error) {
	p = persistent.DefaultProfile()
	fields := text
	if before, rest, found := strings.Cut(text, ":"); found && !strings.Contains(before, "=") {
		name, fields = before, rest
	}
	fail := func(problem, hint string) error {
		return &sandbox.Error{Op: "--profile " + text, Kind: sandbox.ErrInvalid, Problem: problem, Hint: hint}
	}
	seen := map[string]bool{}
	for _, f := range strings.Split(fields, ",") {
		field, value, found := strings.Cut(f, "=")
		if !found || seen[field] {
			return "", p, fail(fmt.Sprintf("%q is no FIELD=VALUE, or there twice", f), "write sandboxes=20,memory=16GiB, for example")
		}
		seen[field] = true
		if hint, err := set(&p, field, value); err != nil {
			return "", p, fail(fmt.Sprintf("%s: %v", field, err), cmp.Or(sandbox.Hint(err), hint))
		}
	}
	if p.Timeout > p.MaxTimeout {
		p.Timeout = p.MaxTimeout
	}
	return name, p, nil
}

// profiles reads those of serve's flags.
func profiles(flags []string) (map[string]persistent.Profile, error) {
	all := map[string]persistent.Profile{}
	for _, text := range flags {
		name, p, err := profile(text)
		if err != nil {
			return nil, err
		}
		if _, twice := all[name]; twice {
			return nil, sandbox.Errorf(sandbox.ErrInvalid, "--profile "+text, "there are two profiles of this name")
		}
		all[name] = p
	}
	return all, nil
}

// set sets one field.
func set(p *persistent.Profile, field, value string) (hint string, err error) {
	count := func(to *int) error {
		n, err := strconv.ParseUint(value, 10, 31)
		switch {
		case err != nil:
			err = fmt.Errorf("%s is out of range", sandbox.Quoted(value))
		case n == 0:
			err = errors.New("0 is none at all")
		}
		*to = int(n)
		return err
	}
	size := func(to *int64) (err error) {
		*to, err = policy.ParseSize(value)
		return err
	}
	span := func(to *time.Duration) (err error) {
		*to, err = policy.ParseDurationFrom(value, leastTime, maxTime)
		return err
	}
	q := &p.Quota
	switch field {
	case "sandboxes":
		return fmt.Sprintf("a number from 1 to %d", maxCount), count(&q.Sandboxes)
	case "paused":
		return fmt.Sprintf("a number from 1 to %d", maxCount), count(&q.Paused)
	case "snapshots":
		return fmt.Sprintf("a number from 1 to %d", maxCount), count(&q.Snapshots)
	case "templates":
		return fmt.Sprintf("a number from 1 to %d", maxCount), count(&q.Templates)
	case "template-size":
		return "bytes: 20GiB", size(&q.TemplateSize)
	case "cpus":
		if q.CPUs, err = strconv.ParseFloat(value, 64); err == nil && !(q.CPUs > 0 && q.CPUs < 1e6) {
			err = fmt.Errorf("%s is no number of processors", value)
		}
		return "a number, 0.5 for half of one", err
	case "memory":
		return "bytes: 16GiB", size(&q.Memory)
	case "disk":
		return "bytes: 100GiB", size(&q.Disk)
	case "records":
		return "bytes in a day: 10GiB", size(&q.Records)
	case "timeout":
		return "a time: 10m", span(&p.Timeout)
	case "max-timeout":
		return "a time: 24h", span(&p.MaxTimeout)
	}
	for _, known := range profileFields {
		if policy.Distance(field, known) <= 2 {
			return "did you mean " + known + "?", errNoField
		}
	}
	return "there are " + strings.Join(profileFields, ", "), errNoField
}

var errNoField = errors.New("there is no such field")
