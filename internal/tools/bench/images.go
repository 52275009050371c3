// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"time"
)

// largeImage is how many bytes of files the image holds that is unpacked.
const largeImage = 200e6

// onImage measures a whole run on a container image that holds the program and
// its libraries alone, beside the same program on runsc's view of the host.
func (s *stage) onImage(ctx context.Context) row {
	u := s.users[0]
	saved, err := s.smallImage(ctx, u, "/bin/true")
	if err != nil {
		return row{notes: []string{err.Error()}}
	}
	p := interleave(ctx, s.o.pairs,
		timed(func(ctx context.Context) *exec.Cmd {
			return s.caisson(ctx, u, "run", "--image", saved, "--", "/bin/true")
		}),
		timed(func(ctx context.Context) *exec.Cmd { return s.runscDo(ctx, u, "/bin/true") }))
	r := p.row("≤ 0.50")
	r.who = u.name
	return r
}

// unpacked measures how long it takes to make an image ready, beside tar, which
// writes the same files to a directory.
func (s *stage) unpacked(ctx context.Context) row {
	u := s.users[0]
	dir := s.path("large")
	saved, err := saveImage(ctx, dir, hostFiles(ctx, "/usr", largeImage))
	if err != nil {
		return row{notes: []string{err.Error()}}
	}
	state, tree := filepath.Join(u.state, "images"), filepath.Join(dir, "tree")
	fresh := func(at string) error { return errors.Join(os.RemoveAll(at), os.Mkdir(at, 0o700)) }
	p := interleave(ctx, s.o.rounds,
		func(ctx context.Context) (took, error) {
			if err := fresh(state); err != nil {
				return took{}, err
			}
			return timed(func(ctx context.Context) *exec.Cmd { return s.caisson(ctx, u, "image", "pull", saved) })(ctx)
		},
		func(ctx context.Context) (took, error) {
			if err := fresh(tree); err != nil {
				return took{}, err
			}
			began := time.Now()
			cmd := exec.CommandContext(ctx, "tar", "-xzf", filepath.Join(dir, "layer.tar.gz"), "-C", tree)
			if out, err := cmd.CombinedOutput(); err != nil {
				return took{}, failure(cmd, err, string(out))
			}
			return took{time.Since(began), processorTime(cmd)}, nil
		})
	r := p.row("≤ 1.50")
	r.who = u.name
	r.notes = append(r.notes, "the other side is tar -xzf, which does not wait for the disk; caisson image pull does")
	return r
}

// smallImage is an image of one program of this host, pulled for u.
func (s *stage) smallImage(ctx context.Context, u user, program string) (string, error) {
	out, err := exec.CommandContext(ctx, "ldd", program).Output()
	if err != nil {
		return "", fmt.Errorf("ldd %s: %w", program, err)
	}
	files := append(regexp.MustCompile(`/\S+`).FindAllString(string(out), -1), program)
	return saveImage(ctx, s.path("small"), files)
}

// hostFiles lists files below dir until they are most bytes together.
func hostFiles(ctx context.Context, dir string, maximum int64) (files []string) {
	_ = filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if ctx.Err() != nil || maximum <= 0 {
			return fs.SkipAll
		}
		if err != nil || !d.Type().IsRegular() {
			return nil
		}
		if info, err := d.Info(); err == nil && info.Size() < 30e6 {
			files, maximum = append(files, p), maximum-info.Size()
		}
		return nil
	})
	return files
}

// saveImage writes an image of one layer as docker save does, and the layer
// beside it, in dir.
func saveImage(ctx context.Context, dir string, files []string) (string, error) {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return "", err
	}
	layer, list := filepath.Join(dir, "layer.tar"), filepath.Join(dir, "list")
	if err := os.WriteFile(list, []byte(strings.Join(files, "\n")), 0o644); err != nil {
		return "", err
	}
	// Links on the way are followed: their targets are what the program finds.
	for _, argv := range [][]string{{"tar", "-chPf", layer, "--transform=s,^/,,", "-T", list}, {"gzip", "-k", layer}} {
		cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", failure(cmd, err, string(out))
		}
	}
	sum := sha256.New()
	f, err := os.Open(layer)
	if err != nil {
		return "", err
	}
	_, err = io.Copy(sum, f)
	if err = errors.Join(err, f.Close()); err != nil {
		return "", err
	}
	config, err := json.Marshal(map[string]any{"os": "linux", "architecture": runtime.GOARCH,
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + hex.EncodeToString(sum.Sum(nil))}}})
	if err != nil {
		return "", err
	}
	saved := filepath.Join(dir, "saved.tar")
	return saved, writeArchive(saved, layer+".gz", config)
}

// writeArchive puts configuration and layer together.
func writeArchive(to, layer string, config []byte) error {
	f, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	w := tar.NewWriter(f)
	data, err := os.ReadFile(layer)
	if err != nil {
		return err
	}
	for _, m := range []struct {
		name string
		data []byte
	}{{"config.json", config}, {"manifest.json", []byte(`[{"Config":"config.json","Layers":["layer.tar.gz"]}]`)}, {"layer.tar.gz", data}} {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: m.name, Mode: 0o644, Size: int64(len(m.data))}); err != nil {
			return err
		}
		if _, err := w.Write(m.data); err != nil {
			return err
		}
	}
	return errors.Join(w.Close(), f.Close())
}
