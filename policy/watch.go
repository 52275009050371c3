// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"strconv"
	"strings"
	"time"
)

// The metrics of watch rules.
const (
	metricCPU           = "cpu_percent"    // 100 is one whole processor, as in top
	metricMemoryPercent = "memory_percent" // of limits.memory
	metricMemory        = "memory"         // bytes
	metricProcesses     = "processes"
	metricDisk          = "disk" // bytes of scratch
)

func metrics() []string {
	return []string{metricCPU, metricMemoryPercent, metricMemory, metricProcesses, metricDisk}
}

// What a watch rule does.
const (
	WatchKill   = "kill"   // end the run as resource_exceeded
	WatchReport = "report" // say so and go on
)

// WatchRule is one entry of watch: "when this has been so for that long".
type WatchRule struct {
	When   string        // as written, "cpu_percent > 80"
	Metric string        // one of cpu_percent, memory_percent, memory, processes, disk
	OrMore bool          // >= instead of >
	Value  float64       // in percent, bytes or processes
	For    time.Duration // how long without a break; 0 is at once
	Do     string        // WatchKill or WatchReport
	From   string        // file:line or "flag"
}

// ParseWatch reads a --watch flag, CONDITION [for DURATION] [do kill|report]:
// "cpu_percent > 80 for 10s do report". Without the latter it kills. Errors are
// ErrInvalid with a hint.
func ParseWatch(s string) (WatchRule, error) {
	r := WatchRule{Do: WatchKill, From: "flag"}
	when, do, ok := strings.Cut(s, " do ")
	if ok {
		r.Do = strings.TrimSpace(do)
		if err := oneOf(WatchKill, WatchReport)(r.Do); err != nil {
			return WatchRule{}, err
		}
	}
	when, long, ok := strings.Cut(when, " for ")
	if ok {
		d, err := ParseDuration(strings.TrimSpace(long))
		if err != nil {
			return WatchRule{}, err
		}
		r.For = d
	}
	if err := parseWhen(when, &r); err != nil {
		return WatchRule{}, err
	}
	return r, nil
}

// parseWhen reads METRIC > VALUE or METRIC >= VALUE into r.
func parseWhen(s string, r *WatchRule) error {
	i := strings.IndexAny(s, "<>=!")
	if i < 0 {
		return invalid(`write a metric and a bound, such as "cpu_percent > 80"`, "condition %s has no >", quote(s))
	}
	metric, op := strings.TrimSpace(s[:i]), ">"
	rest := s[i:]
	switch {
	case strings.HasPrefix(rest, ">="):
		op, r.OrMore = ">=", true
	case strings.HasPrefix(rest, ">"):
	default:
		return invalid(`a rule watches for too much: use > or >=`, "condition %s compares with neither > nor >=", quote(s))
	}
	if !isMetric(metric) {
		return invalid(didYouMean(metric, metrics()), "%s cannot be watched", quote(metric))
	}
	value, err := parseThreshold(metric, strings.TrimSpace(rest[len(op):]))
	if err != nil {
		return err
	}
	r.When, r.Metric, r.Value = metric+" "+op+" "+strings.TrimSpace(rest[len(op):]), metric, value
	return nil
}

func isMetric(s string) bool {
	for _, m := range metrics() {
		if m == s {
			return true
		}
	}
	return false
}

func parseThreshold(metric, s string) (float64, error) {
	switch metric {
	case metricMemory, metricDisk:
		n, err := ParseSize(s)
		return float64(n), err
	case metricProcesses:
		n, err := ParseCount(s, maxProcesses)
		return float64(n), err
	}
	maximum := 100.0
	if metric == metricCPU {
		maximum = 100 * maxCPUs
	}
	number := strings.TrimSpace(strings.TrimSuffix(s, "%"))
	v, err := strconv.ParseFloat(number, 64)
	if err != nil || strings.Trim(number, "0123456789.") != "" || v < 0 || v > maximum {
		return 0, invalid("write a number between 0 and "+strconv.FormatFloat(maximum, 'f', -1, 64), "%s is not a percentage", quote(s))
	}
	return v, nil
}
