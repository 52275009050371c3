// SPDX-License-Identifier: Apache-2.0

package envd

// envd's services beside Connect's.
const (
	PathHealth  = "/health"
	PathMetrics = "/metrics" // answers with Metrics
	PathEnvs    = "/envs"    // answers with the sandbox's variables
)

// Metrics is what a sandbox uses, as envd counts it.
type Metrics struct {
	Timestamp   int64   `json:"ts"` // Unix seconds
	CPUCount    uint32  `json:"cpu_count"`
	CPUUsed     float32 `json:"cpu_used_pct"` // all processors together are 100; since the last answer
	MemTotalMiB uint64  `json:"mem_total_mib"`
	MemUsedMiB  uint64  `json:"mem_used_mib"`
	MemTotal    uint64  `json:"mem_total"` // bytes, as all that follow
	MemUsed     uint64  `json:"mem_used"`
	MemCache    uint64  `json:"mem_cache"`
	DiskUsed    uint64  `json:"disk_used"`
	DiskTotal   uint64  `json:"disk_total"`
}
