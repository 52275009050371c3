// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path"
	"syscall"

	"github.com/caisson-run/caisson/internal/envd"
)

// maxSources bounds the files that are put together at once.
const maxSources = 10_000

// serveCompose answers POST /files/compose: files become one, and are removed.
func (a *Agent) serveCompose(w http.ResponseWriter, r *http.Request) {
	var q envd.ComposeRequest
	b, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequest))
	if err == nil {
		err = json.Unmarshal(b, &q)
	}
	if err != nil {
		writeFileError(w, &connectError{codeInvalid, "invalid request body: " + err.Error()})
		return
	}
	answer, err := a.compose(r, &q)
	if err != nil {
		writeFileError(w, err)
		return
	}
	writeJSON(w, http.StatusOK, answer)
}

func (a *Agent) compose(r *http.Request, q *envd.ComposeRequest) (*envd.Written, error) {
	switch {
	case len(q.Sources) == 0:
		return nil, &connectError{codeInvalid, "source_paths must not be empty"}
	case len(q.Sources) > maxSources:
		return nil, &connectError{codeInvalid, fmt.Sprintf("there are more than %d source_paths", maxSources)}
	case q.Destination == "":
		return nil, &connectError{codeInvalid, "destination is required"}
	}
	u, err := a.userNamed(r, q.Username)
	if err != nil {
		return nil, err
	}
	to, err := u.path(q.Destination)
	if err != nil {
		return nil, err
	}
	from := make([]string, len(q.Sources))
	for i, s := range q.Sources {
		if from[i], err = u.path(s); err != nil {
			return nil, err
		}
		if from[i] == to {
			return nil, &connectError{codeInvalid, fmt.Sprintf("source path %q cannot be the same as destination", s)}
		}
	}
	if err := u.as(func() error { return join(from, to) }); err != nil {
		return nil, err
	}
	return &envd.Written{Name: path.Base(to), Path: to, Type: "file"}, nil
}

// join makes one file of several and removes these. Nothing has changed when it
// fails.
func join(from []string, to string) (err error) {
	if err := os.MkdirAll(path.Dir(to), 0o755); err != nil {
		return err
	}
	temporary := path.Join(path.Dir(to), ".caisson-"+rand.Text())
	f, err := openRegular(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	defer func() {
		if failed := f.Close(); err == nil {
			err = failed
		}
		if err == nil {
			err = os.Rename(temporary, to)
		}
		if err != nil {
			os.Remove(temporary)
			return
		}
		for _, s := range from {
			os.Remove(s)
		}
	}()
	for _, s := range from {
		in, err := openRegular(s, os.O_RDONLY, 0)
		if errors.Is(err, fs.ErrNotExist) {
			return &connectError{codeNotFound, "source file not found: " + s}
		}
		if err != nil {
			return err
		}
		_, err = io.Copy(f, in)
		in.Close()
		if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
			return errDiskFull
		}
		if err != nil {
			return err
		}
	}
	return nil
}
