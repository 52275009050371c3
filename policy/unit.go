// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/caisson-run/caisson/sandbox"
)

// The bounds of what can be meant. They catch slips of the pen, such as a
// size in the wrong unit; what a host or a level can carry is asked of it.
const (
	maxSize      = 1 << 50             // 1 PiB
	minDuration  = time.Millisecond    // shorter than any program starts
	maxDuration  = 30 * 24 * time.Hour // 30 days
	minCPUs      = 0.01                // the kernel's smallest quota: 1 ms of 100 ms
	maxCPUs      = 1024                //
	maxProcesses = 4194304             // the kernel's PID_MAX_LIMIT
	maxOpenFiles = 1048576             // the kernel's default fs.nr_open
	maxInodes    = 1 << 32             //
	maxIOPS      = 1000000000          //
)

// sizeUnit is a unit of sizes; KB is 1000 bytes, KiB is 1024.
type sizeUnit struct {
	name  string
	bytes int64
}

// sizeUnits lists the units, the largest first.
func sizeUnits() []sizeUnit {
	return []sizeUnit{
		{"PiB", 1 << 50}, {"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10},
		{"PB", 1e15}, {"TB", 1e12}, {"GB", 1e9}, {"MB", 1e6}, {"KB", 1e3}, {"B", 1},
	}
}

// invalid makes the error of a value that cannot be meant.
func invalid(hint, format string, args ...any) *sandbox.Error {
	return &sandbox.Error{Kind: sandbox.ErrInvalid, Problem: fmt.Sprintf(format, args...), Hint: short(hint)}
}

// short cuts a hint that quotes a value without end.
func short(hint string) string { return sandbox.Clip(hint, 300) }

// dockerUnits are what "docker run --memory" takes: 1024s, in small letters. A capital M is
// another number to Kubernetes, and none here.
func dockerUnits() []sizeUnit {
	return []sizeUnit{{"g", 1 << 30}, {"m", 1 << 20}, {"k", 1 << 10}, {"b", 1}}
}

// ParseSize reads a number of bytes: "256MiB", "100KB", "4096B", "4096", or "256m" as
// Docker has it. The units are B, KB, MB, GB, TB (thousands), KiB, MiB, GiB, TiB, PiB
// (1024s), and b, k, m, g (1024s); the size lies between 1 byte and 1 PiB. Errors are ErrInvalid with
// the nearest right spelling as their hint.
func ParseSize(s string) (int64, error) {
	digits, unit := splitNumber(s)
	if digits == "" {
		return 0, invalid("write a whole number and a unit, such as 256MiB", "%s is not a size", quote(s))
	}
	factor := int64(1)
	if unit != "" {
		u, ok := findUnit(unit)
		if !ok {
			return 0, invalid(unitHint(digits, unit), "%s is not a size", quote(s))
		}
		factor = u.bytes
	}
	if len(digits) > 1 && digits[0] == '0' { // octal to some, decimal to others
		return 0, invalid("drop the leading 0", "%s is not a size", quote(s))
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n > maxSize/factor {
		return 0, invalid("the most is 1PiB", "size %s is too large", quote(s))
	}
	if n == 0 {
		return 0, invalid("the least is 1B", "a size of 0 cannot be meant")
	}
	return n * factor, nil
}

// splitNumber cuts s after its leading decimal digits.
func splitNumber(s string) (digits, rest string) {
	i := 0
	for i < len(s) && s[i] >= '0' && s[i] <= '9' {
		i++
	}
	return s[:i], s[i:]
}

func findUnit(name string) (sizeUnit, bool) {
	for _, u := range append(sizeUnits(), dockerUnits()...) {
		if u.name == name {
			return u, true
		}
	}
	return sizeUnit{}, false
}

// unitHint says what was meant by digits and an unknown unit: 128M, 128mb, 128
// MiB, 1.5GiB.
func unitHint(digits, unit string) string {
	if strings.HasPrefix(unit, ".") {
		return "fractions are not taken: write a whole number of a smaller unit, such as 1536MiB for 1.5GiB"
	}
	letters := strings.ToLower(strings.TrimSpace(unit))
	for _, u := range sizeUnits() {
		full := strings.ToLower(u.name)
		if letters == full || letters == strings.TrimSuffix(full, "b") || letters == strings.TrimSuffix(full, "ib") {
			return "did you mean " + digits + u.name + "?"
		}
	}
	return "the units are B, KiB, MiB, GiB, TiB and KB, MB, GB, TB"
}

// formatSize writes n in the largest unit that divides it.
func formatSize(n int64) string {
	for _, u := range sizeUnits() {
		if n >= u.bytes && n%u.bytes == 0 && (strings.HasSuffix(u.name, "iB") || n%1e3 == 0 || u.bytes == 1) {
			return strconv.FormatInt(n/u.bytes, 10) + u.name
		}
	}
	return strconv.FormatInt(n, 10) + "B"
}

// ParseDuration reads a duration in Go's notation: "30s", "1m30s", "500ms". It
// lies between 1 ms and 30 days. Errors are ErrInvalid with a hint.
func ParseDuration(s string) (time.Duration, error) {
	return ParseDurationFrom(s, minDuration, maxDuration)
}

// ParseDurationFrom is ParseDuration with other bounds.
func ParseDurationFrom(s string, minimum, maximum time.Duration) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	beyond := err != nil // what a Duration can hold
	if beyond {
		if d, err = time.ParseDuration(withOnes(s)); err != nil {
			return 0, invalid(durationHint(s, minimum, maximum), "%s is not a duration", quote(s))
		}
	}
	switch {
	case d < 0:
		return 0, invalid("the least is "+minimum.String(), "duration %s is negative", quote(s))
	case d > maximum || beyond:
		return 0, invalid("the most is "+inHours(maximum), "duration %s is too long", quote(s))
	case d < minimum:
		return 0, invalid("the least is "+minimum.String(), "duration %s is too short", quote(s))
	}
	return d, nil
}

// inHours is a duration of whole hours for people, who count many of them in days.
func inHours(d time.Duration) string {
	hours := int(d.Hours())
	if hours < 48 || hours%24 != 0 {
		return fmt.Sprintf("%dh", hours)
	}
	return fmt.Sprintf("%dh, %d days", hours, hours/24)
}

// withOnes is s with a 1 for each number: 1h1m for 99999999h30m. What cannot be read
// as it is and can be so has too large a number.
func withOnes(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		digit := s[i] >= '0' && s[i] <= '9'
		switch {
		case !digit:
			b.WriteByte(s[i])
		case i == 0 || s[i-1] < '0' || s[i-1] > '9':
			b.WriteByte('1')
		}
	}
	return b.String()
}

// durationHint says what was meant by 30, 30 s, 2d or 5 min.
func durationHint(s string, minimum, maximum time.Duration) string {
	digits, unit := splitNumber(s)
	if digits == "" || len(digits) > 9 {
		return "write a number and a unit, such as 30s, 5m or 1h30m"
	}
	n, _ := strconv.Atoi(digits)
	meant, why := "", ""
	switch strings.ToLower(strings.TrimSpace(unit)) {
	case "", "s", "sec", "secs", "second", "seconds":
		meant = digits + "s"
	case "m", "min", "mins", "minute", "minutes":
		meant = digits + "m"
	case "h", "hour", "hours", "hr":
		meant = digits + "h"
	case "d", "day", "days":
		meant, why = fmt.Sprintf("%dh", 24*n), "days are written in hours: "
	default:
		return "the units are ms, s, m and h, such as 30s or 1h30m"
	}
	if _, err := ParseDurationFrom(meant, minimum, maximum); err != nil {
		return why + sandbox.Hint(err)
	}
	return why + "did you mean " + meant + "?"
}

// ParseRate reads a number of bytes per second: "50MiB/s". The bounds are
// those of ParseSize. Errors are ErrInvalid with a hint.
func ParseRate(s string) (int64, error) {
	size, ok := strings.CutSuffix(s, "/s")
	if !ok {
		hint := "write a size per second, such as 50MiB/s"
		if _, err := ParseSize(s); err == nil {
			hint = "did you mean " + s + "/s?"
		}
		return 0, invalid(hint, "%s is not a rate", quote(s))
	}
	n, err := ParseSize(size)
	if e := (*sandbox.Error)(nil); errors.As(err, &e) && strings.HasPrefix(e.Hint, "the ") { // a bound
		return 0, invalid(e.Hint+"/s", "%s is out of range", quote(s))
	}
	return n, err
}

// ParseIOPS reads a number of operations per second: "1000/s" or "1000",
// between 1 and a thousand million. Errors are ErrInvalid with a hint.
func ParseIOPS(s string) (int64, error) {
	digits, ok := strings.CutSuffix(s, "/s")
	n, err := ParseCount(digits, maxIOPS)
	if err != nil && !ok && (digits == "" || strings.Trim(digits, "-0123456789") != "") {
		return 0, invalid("write a number of operations per second, such as 1000/s", "%s is not a rate", quote(s))
	}
	return n, err
}

// ParseCPUs reads a share of processors: "0.5" is half of one. It lies between
// 0.01 and 1024. Errors are ErrInvalid with a hint.
func ParseCPUs(s string) (float64, error) {
	// ParseFloat alone would take 1e3, 0x10, Inf and NaN.
	if strings.Trim(s, "0123456789.") != "" || s == "" {
		hint := "write a number between 0.01 and 1024, such as 0.5 or 2"
		if m, ok := strings.CutSuffix(s, "m"); ok && strings.Trim(m, "0123456789") == "" && m != "" {
			if n, err := strconv.Atoi(m); err == nil {
				hint = "did you mean " + strconv.FormatFloat(float64(n)/1000, 'g', -1, 64) + "?"
			}
		}
		return 0, invalid(hint, "%s is not a number of processors", quote(s))
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || math.IsNaN(f) {
		return 0, invalid("write a number between 0.01 and 1024, such as 0.5 or 2", "%s is not a number of processors", quote(s))
	}
	if f < minCPUs || f > maxCPUs {
		return 0, invalid("it lies between 0.01 and 1024", "%s processors cannot be meant", s)
	}
	return f, nil
}

// ParseCount reads a whole number between 1 and most. Errors are ErrInvalid
// with a hint.
func ParseCount(s string, maximum int64) (int64, error) {
	hint := fmt.Sprintf("write a whole number between 1 and %d", maximum)
	digits, rest := splitNumber(strings.TrimPrefix(s, "-"))
	if digits == "" || rest != "" {
		return 0, invalid(hint, "%s is not a whole number", quote(s))
	}
	if len(digits) > 1 && digits[0] == '0' { // octal to some, decimal to others
		return 0, invalid("drop the leading 0", "%s is not a whole number", quote(s))
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n > maximum || n < 1 {
		return 0, invalid(hint, "%s is out of range", quote(s))
	}
	return n, nil
}

// quote shows s in a message: in quotes, control characters escaped, cut short.
func quote(s string) string {
	const maximum = 60
	if len(s) > maximum {
		return strconv.Quote(strings.ToValidUTF8(s[:maximum], "")) + "…"
	}
	return strconv.Quote(s)
}
