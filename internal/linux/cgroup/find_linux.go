// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Bounds of find. What is beyond them is not found: any user to whom a group was
// delegated can make groups below it.
const (
	maxDepth  = 32
	maxGroups = 100_000 // in all hierarchies together
)

// find are the directories of groups of ours, in all hierarchies that this host has
// controllers in, whose names pass. Groups of other users are none: everybody sees the
// names, and can give them to groups below one that was delegated to them.
func (h *Host) find(ctx context.Context, pass func(name string) bool) (found []string) {
	left := maxGroups
	for _, root := range h.roots {
		found = append(found, findBelow(ctx, root, maxDepth, &left, pass)...)
	}
	return found
}

func findBelow(ctx context.Context, dir string, depth int, left *int, pass func(name string) bool) (found []string) {
	// A group without groups in it has two links, and some fifty files.
	if info, err := os.Lstat(dir); err != nil || ctx.Err() != nil || depth == 0 || links(info) == 2 {
		return nil
	}
	d, err := os.Open(dir)
	if err != nil {
		return nil // it has gone, or is not for us
	}
	entries, _ := d.ReadDir(-1)
	d.Close()
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		if *left--; *left < 0 {
			break
		}
		path := filepath.Join(dir, e.Name())
		if name := groupName(path); name != "" && pass(name) && isOwn(path) {
			found = append(found, path)
			continue
		}
		found = append(found, findBelow(ctx, path, depth-1, left, pass)...)
	}
	return found
}

// isOwn says that this user made the group at dir.
func isOwn(dir string) bool {
	var st unix.Stat_t
	return unix.Lstat(dir, &st) == nil && int(st.Uid) == os.Geteuid()
}

func links(info os.FileInfo) uint64 {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0
	}
	return uint64(st.Nlink) // its type differs between architectures
}

// groupName is what the group at dir is called, if it is where groups of ours are.
func groupName(dir string) string {
	name, flat := strings.CutPrefix(filepath.Base(dir), flatPrefix)
	if !flat && filepath.Base(filepath.Dir(dir)) != parentName || checkName(name) != nil {
		return ""
	}
	return name
}
