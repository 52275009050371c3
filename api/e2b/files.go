// SPDX-License-Identifier: Apache-2.0

package e2b

import (
	"errors"
	"io"
	"maps"
	"net/http"
	"time"

	"github.com/caisson-run/caisson/api/bounds"
	"github.com/caisson-run/caisson/guest"
	"github.com/caisson-run/caisson/guest/wire"
	"github.com/caisson-run/caisson/sandbox"
)

// Files go to and from the agent as streams. Nothing of them is kept here, and
// no name in them is a name of the host.

func (s *Server) serveDownload(w http.ResponseWriter, r *http.Request, in *inside) error {
	d, err := in.Download(r.Context(), r.URL.Query().Get("path"), r.Header)
	if err != nil {
		return err
	}
	defer d.Body.Close()
	maps.Copy(w.Header(), d.Header)
	// Whatever it is, it is not shown as a page here.
	w.Header().Set("Content-Disposition", "attachment")
	w.WriteHeader(d.Status)
	if r.Method == http.MethodHead {
		return nil
	}
	if _, err := io.Copy(bounds.Patient(w), d.Body); err != nil {
		panic(http.ErrAbortHandler) // it has begun: only a break says that it is not whole
	}
	return nil
}

// serveUpload answers with the files that were written, in E2B's words.
func (s *Server) serveUpload(w http.ResponseWriter, r *http.Request, in *inside) error {
	control := http.NewResponseController(w)
	defer control.SetReadDeadline(time.Time{})
	all, err := in.Upload(r.Context(), guest.Upload{
		Path: r.URL.Query().Get("path"), ContentType: r.Header.Get("Content-Type"), ContentEncoding: r.Header.Get("Content-Encoding"),
		Metadata: r.Header, Body: bounds.Reader{Reader: r.Body, Control: control},
	})
	if err != nil {
		return err
	}
	answer := make([]wire.Written, 0, len(all))
	for _, f := range all {
		answer = append(answer, written(f))
	}
	writeJSON(w, http.StatusOK, answer)
	return nil
}

func written(f guest.Written) wire.Written {
	return wire.Written{Name: f.Name, Path: f.Path, Type: "file", Metadata: f.Metadata}
}

// serveCompose makes one file of several.
func (s *Server) serveCompose(w http.ResponseWriter, r *http.Request, in *inside) error {
	var q wire.ComposeRequest
	if err := readUnary(w, r, &q); errors.Is(err, sandbox.ErrExhausted) {
		return err
	} else if err != nil {
		return &apiError{http.StatusBadRequest, err.Error()}
	}
	f, err := in.Compose(r.Context(), q.Sources, q.Destination)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, written(f))
	return nil
}
