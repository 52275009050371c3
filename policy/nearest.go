// SPDX-License-Identifier: Apache-2.0

package policy

import "strings"

// nearest returns the word that somebody who wrote got most likely meant, or
// "". Words of other tools are known by heart (timeout is our wall); else it
// is the word with the fewest slips: a letter too many, too few, wrong, or two
// swapped. Of equals the first wins, so that messages are stable.
func nearest(got string, words []string) string {
	if len(got) > 40 {
		return ""
	}
	got = strings.ToLower(strings.ReplaceAll(got, "-", "_"))
	best, least := "", 1+len(got)/3
	for _, w := range words {
		if w == got || w == synonym(got) {
			return w
		}
		if n := slips(got, w); n <= least && n < len(w) && (best == "" || n < least) {
			best, least = w, n
		}
	}
	for _, w := range words {
		if best == "" && len(got) > 2 && strings.HasPrefix(w, got) {
			best = w
		}
	}
	return best
}

// synonym is our word for another tool's.
func synonym(word string) string {
	switch word {
	case "timeout", "time", "wall_time", "deadline":
		return "wall"
	case "cpu", "cores", "vcpus":
		return "cpus"
	case "mem", "ram", "memory_limit":
		return "memory"
	case "pids", "pids_limit", "nproc", "threads":
		return "processes"
	case "nofile", "files_open", "fds":
		return "open_files"
	case "storage", "quota", "disk_size":
		return "disk"
	case "volumes", "binds", "mount":
		return "mounts"
	case "image", "root", "root_fs":
		return "rootfs"
	case "environment", "vars":
		return "env"
	case "level", "runtime", "backend", "driver":
		return "isolation"
	case "readonly", "read_only", "r":
		return "ro"
	case "readwrite", "read_write", "w":
		return "rw"
	case "overlay", "copy_on_write":
		return "cow"
	case "runsc":
		return "gvisor"
	case "container", "podman":
		return "docker"
	case "firecracker":
		return "microvm"
	case "qemu", "kvm":
		return "vm"
	case "k8s", "kube":
		return "kubernetes"
	}
	return word
}

// slips is the edit distance of a and b with swaps of neighbours (optimal
// string alignment). Both are short: callers bound them.
func slips(a, b string) int {
	before, prev, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(prev[j]+1, row[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, prev, row = prev, row, before
	}
	return prev[len(b)]
}

// didYouMean is the hint for an unknown word among words.
func didYouMean(got string, words []string) string {
	if w := nearest(got, words); w != "" {
		return "did you mean " + w + "?"
	}
	return "known are " + strings.Join(words, ", ")
}
