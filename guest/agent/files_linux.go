// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"mime"
	"mime/multipart"
	"net/http"
	"os"
	"path"
	"strconv"
	"syscall"
)

// serveDownload answers GET /files with a file's bytes.
func (a *Agent) serveDownload(w http.ResponseWriter, r *http.Request) {
	var f *os.File
	err := a.withPath(r, r.URL.Query().Get("path"), func(p string) (err error) {
		f, err = openRegular(p, os.O_RDONLY, 0)
		return err
	})
	if err != nil {
		writeFileError(w, err)
		return
	}
	defer f.Close()
	i, err := f.Stat()
	if err != nil {
		writeFileError(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	if i.Size() > 0 {
		http.ServeContent(w, r, "", i.ModTime(), f)
		return
	}
	// Files of /proc have no size. A file that is empty says so.
	first := make([]byte, 32<<10)
	n, err := f.Read(first)
	if n == 0 && err == io.EOF {
		w.Header().Set("Content-Length", "0")
		return
	}
	w.Write(first[:n])
	io.Copy(w, f)
}

// written is a file of an upload's answer, as envd writes it.
type written struct {
	Name string `json:"name"`
	Path string `json:"path"`
	Type string `json:"type"`
}

// serveUpload answers POST /files: a body for the path that the query names,
// or a form with files. Our own parameters are atomic=1, which puts the file
// in place only when it is whole, and mode in octal.
func (a *Agent) serveUpload(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	u, err := a.user(r)
	if err != nil {
		writeFileError(w, err)
		return
	}
	o := writeOptions{user: u, atomic: q.Get("atomic") == "1", mode: -1}
	if m := q.Get("mode"); m != "" {
		v, err := strconv.ParseUint(m, 8, 32)
		if err != nil || v > 0o7777 {
			writeFileError(w, &connectError{codeInvalid, "the mode is not octal"})
			return
		}
		o.mode = int(v)
	}
	var all []written
	if kind, params, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind == "multipart/form-data" {
		all, err = o.form(q.Get("path"), multipart.NewReader(r.Body, params["boundary"]))
	} else {
		all, err = o.one(q.Get("path"), r.Body, nil)
	}
	if err != nil {
		writeFileError(w, err)
		return
	}
	writeJSON(w, http.StatusOK, all)
}

// form writes the parts named file.
func (o writeOptions) form(to string, form *multipart.Reader) ([]written, error) {
	all := []written{}
	for {
		part, err := form.NextPart()
		if err == io.EOF {
			return all, nil
		}
		if err != nil {
			return nil, &connectError{codeInvalid, err.Error()}
		}
		// Part.FileName would cut the directories off.
		_, params, err := mime.ParseMediaType(part.Header.Get("Content-Disposition"))
		if err != nil || params["name"] != "file" {
			continue
		}
		name := to
		if name == "" {
			name = params["filename"]
		}
		if all, err = o.one(name, part, all); err != nil {
			return nil, err
		}
	}
}

func (o writeOptions) one(name string, r io.Reader, all []written) ([]written, error) {
	p, err := o.user.path(name)
	if err != nil {
		return nil, err
	}
	if err := o.write(p, r); err != nil {
		return nil, err
	}
	return append(all, written{path.Base(p), p, "file"}), nil
}

// writeOptions say how a file is written.
type writeOptions struct {
	user   user
	atomic bool
	mode   int // -1: as the umask has it
}

// write writes a file and the directories above it.
func (o writeOptions) write(p string, r io.Reader) (err error) {
	target, flags := p, os.O_WRONLY|os.O_CREATE|os.O_TRUNC
	if o.atomic {
		// Beside it, since a rename cannot leave the file system.
		target = path.Join(path.Dir(p), ".caisson-"+rand.Text())
		flags = os.O_WRONLY | os.O_CREATE | os.O_EXCL
	}
	var f *os.File
	err = o.user.as(func() (err error) {
		if i, err := os.Stat(p); err == nil && i.IsDir() {
			return &connectError{codeInvalid, "path is a directory: " + p}
		}
		if err := os.MkdirAll(path.Dir(p), 0o755); err != nil {
			return err
		}
		f, err = openRegular(target, flags, 0o666)
		return err
	})
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	if o.mode >= 0 && err == nil {
		err = o.user.as(func() error { return syscall.Fchmod(int(f.Fd()), uint32(o.mode)) })
	}
	err = errors.Join(err, f.Close())
	if !o.atomic {
		return err
	}
	return o.user.as(func() error {
		if err == nil {
			err = os.Rename(target, p)
		}
		if err != nil {
			os.Remove(target)
		}
		return err
	})
}

// writeFileError answers as envd's /files does: the code is the status.
func writeFileError(w http.ResponseWriter, err error) {
	status := asConnect(err).status()
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		status = http.StatusInsufficientStorage
	case errors.Is(err, fs.ErrPermission):
		status = http.StatusForbidden
	}
	writeJSON(w, status, struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	}{status, err.Error()})
}
