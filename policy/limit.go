// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/caisson-run/caisson/sandbox"
)

// limitOnOutput is the policy file's key for what happens beyond
// limits.output. In Limits.Explicit of a Call it says that OutputKill was
// written down; it is a choice, not an amount.
const limitOnOutput sandbox.LimitName = "on_output"

// limit is how one limit is read, compared and shown. Amounts are float64,
// which holds every one within its bounds exactly (below 2^53).
type limit struct {
	name     sandbox.LimitName
	scalar   scalar // how a policy file writes it
	min, max float64
	get      func(*sandbox.Limits) float64
	set      func(*sandbox.Limits, float64)
	parse    func(string) (float64, error)
	format   func(float64) string
}

// limits is the table of all limits, in the order of sandbox.LimitNames.
var limits = sync.OnceValue(func() []limit {
	return []limit{
		duration(sandbox.LimitWall, func(l *sandbox.Limits) *time.Duration { return &l.Wall }),
		duration(sandbox.LimitCPUTime, func(l *sandbox.Limits) *time.Duration { return &l.CPUTime }),
		{
			name: sandbox.LimitCPUs, scalar: scalarNumber, min: minCPUs, max: maxCPUs,
			get: func(l *sandbox.Limits) float64 { return l.CPUs },
			set: func(l *sandbox.Limits, v float64) { l.CPUs = v }, parse: ParseCPUs,
			format: func(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) },
		},
		size(sandbox.LimitMemory, func(l *sandbox.Limits) *int64 { return &l.Memory }),
		count(sandbox.LimitProcesses, maxProcesses, func(l *sandbox.Limits) *int { return &l.Processes }),
		count(sandbox.LimitOpenFiles, maxOpenFiles, func(l *sandbox.Limits) *int { return &l.OpenFiles }),
		size(sandbox.LimitFileSize, func(l *sandbox.Limits) *int64 { return &l.FileSize }),
		size(sandbox.LimitDisk, func(l *sandbox.Limits) *int64 { return &l.Disk }),
		count(sandbox.LimitInodes, maxInodes, func(l *sandbox.Limits) *int64 { return &l.Inodes }),
		size(sandbox.LimitTmp, func(l *sandbox.Limits) *int64 { return &l.Tmp }),
		rate(sandbox.LimitIO, maxSize, ParseRate, formatSize, func(l *sandbox.Limits) *int64 { return &l.IO }),
		rate(sandbox.LimitIOPS, maxIOPS, ParseIOPS, formatCount, func(l *sandbox.Limits) *int64 { return &l.IOPS }),
		size(sandbox.LimitOutput, func(l *sandbox.Limits) *int64 { return &l.Output }),
	}
})

// amount makes a limit from a pointer to its field.
func amount[T ~int | ~int64](name sandbox.LimitName, s scalar, minimum, maximum T, field func(*sandbox.Limits) *T,
	parse func(string) (T, error), format func(T) string,
) limit {
	return limit{
		name: name, scalar: s, min: float64(minimum), max: float64(maximum),
		get:    func(l *sandbox.Limits) float64 { return float64(*field(l)) },
		set:    func(l *sandbox.Limits, v float64) { *field(l) = T(v) },
		parse:  func(s string) (float64, error) { v, err := parse(s); return float64(v), err },
		format: func(v float64) string { return format(T(v)) },
	}
}

func duration(name sandbox.LimitName, field func(*sandbox.Limits) *time.Duration) limit {
	return amount(name, scalarText, minDuration, maxDuration, field, ParseDuration, time.Duration.String)
}

func size(name sandbox.LimitName, field func(*sandbox.Limits) *int64) limit {
	return amount(name, scalarTextOrInt, 1, maxSize, field, ParseSize, formatSize)
}

func rate(name sandbox.LimitName, maximum int64, parse func(string) (int64, error), format func(int64) string,
	field func(*sandbox.Limits) *int64,
) limit {
	s := scalarText
	if name == sandbox.LimitIOPS {
		s = scalarTextOrInt
	}
	return amount(name, s, 1, maximum, field, parse, func(v int64) string { return format(v) + "/s" })
}

func count[T ~int | ~int64](name sandbox.LimitName, maximum T, field func(*sandbox.Limits) *T) limit {
	parse := func(s string) (T, error) { n, err := ParseCount(s, int64(maximum)); return T(n), err }
	return amount(name, scalarInt, 1, maximum, field, parse, func(v T) string { return formatCount(int64(v)) })
}

func formatCount(n int64) string { return strconv.FormatInt(n, 10) }

// within says whether v can be meant. NaN cannot.
func (l limit) within(v float64) bool { return v >= l.min && v <= l.max }

// bound is v as an upper bound: 0 is no limit at all.
func bound(v float64) float64 {
	if v == 0 {
		return math.Inf(1)
	}
	return v
}

// LimitText is one limit of l as a policy file writes it, and "" where it is none.
func LimitText(l *sandbox.Limits, name sandbox.LimitName) string {
	for _, of := range limits() {
		if v := of.get(l); of.name == name && v != 0 {
			return of.format(v)
		}
	}
	return ""
}

// ReadLimit sets one limit of l to what text says, as a policy file writes it. Errors
// are ErrInvalid, and hint at the range.
func ReadLimit(l *sandbox.Limits, name sandbox.LimitName, text string) error {
	for _, of := range limits() {
		if of.name != name {
			continue
		}
		v, err := of.read(text)
		if err == nil {
			of.set(l, v)
		}
		return err
	}
	return invalid("", "there is no limit %s", quote(string(name)))
}

// read reads what a file or a caller wrote. A word that means no limit elsewhere gets a
// hint how that is said here.
func (l limit) read(text string) (float64, error) {
	v, err := l.parse(text)
	var e *sandbox.Error
	if err == nil || !meansNone(text) || !errors.As(err, &e) {
		return v, err
	}
	defaults := sandbox.DefaultLimits()
	hint := "there is none unless one is set: leave it out"
	if l.get(&defaults) != 0 {
		hint = "it cannot be taken away; the most is " + l.format(l.max)
	}
	return 0, invalid(hint, "%s", e.Problem)
}

// meansNone says whether other programs take a text for no limit.
func meansNone(text string) bool {
	word := strings.ToLower(strings.TrimSpace(text))
	switch word {
	case "none", "no", "off", "unlimited", "inf", "infinity", "max", "false":
		return true
	}
	number := strings.TrimRight(word, "/abcdefghijklmnopqrstuvwxyz")
	return number == "-1" || strings.Contains(number, "0") && strings.Trim(number, "0.") == ""
}

// say writes v for people, who wrote something else perhaps: a fraction, or what is in
// no range.
func (l limit) say(v float64) string {
	if math.Abs(v) < 1<<53 && v == math.Trunc(v) {
		return l.format(v)
	}
	return strconv.FormatFloat(v, 'g', -1, 64)
}

// show writes v for people; 0 is "none".
func (l limit) show(v float64) string {
	if v == 0 {
		return "none"
	}
	return l.format(v)
}
