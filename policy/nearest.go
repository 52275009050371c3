// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"strings"
)

// nearest returns the word that was most likely meant by got, or "". Words of
// other tools are known by heart (timeout is our wall); else it is the word
// with the fewest slips: a letter too many, too few, wrong, or two swapped. Of
// equals the first wins, so that messages are stable.
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
		if n := Distance(got, w); n <= least && n < len(w) && (best == "" || n < least) {
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

// didYouMean is the hint for an unknown word among words.
func didYouMean(got string, words []string) string {
	if w := nearest(got, words); w != "" {
		return "did you mean " + w + "?"
	}
	return "known are " + strings.Join(words, ", ")
}
