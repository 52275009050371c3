// SPDX-License-Identifier: Apache-2.0

package e2b

import (
	"errors"
	"io"
	"maps"
	"mime/multipart"
	"net/http"
	"strings"
	"time"

	"github.com/caisson-run/caisson/api/bounds"
	"github.com/caisson-run/caisson/guest"
	"github.com/caisson-run/caisson/guest/wire"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
)

// Files go to and from the agent as streams. Nothing of them is kept here, and
// no name in them is a name of the host.

func (s *Server) serveDownload(w http.ResponseWriter, r *http.Request, in *inside) error {
	begun := false
	err := s.touch(r.Context(), in, policy.ReadFile, []string{r.URL.Query().Get("path")}, func(agent *guest.Client, paths []string) ([]sandbox.File, error) {
		d, err := agent.Download(r.Context(), paths[0], unpacked(r.Header))
		if err != nil {
			return nil, err
		}
		defer d.Body.Close()
		maps.Copy(w.Header(), d.Header)
		// Whatever it is, it is not shown as a page here.
		w.Header().Set("Content-Disposition", "attachment")
		w.WriteHeader(d.Status)
		begun = true
		t := session.NewTally()
		if r.Method != http.MethodHead {
			_, err = io.CopyBuffer(bounds.Patient(w), io.TeeReader(d.Body, t), make([]byte, downloadPiece))
		}
		return []sandbox.File{t.File(paths[0], d.Status != http.StatusOK || d.Header.Get("Content-Encoding") != "" || r.Method == http.MethodHead)}, err
	})
	if err != nil && begun {
		panic(http.ErrAbortHandler) // only a break says that it is not whole
	}
	return err
}

// downloadPiece is how much of a file is passed on at once, in bytes: a frame of
// the agent's.
const downloadPiece = 64 << 10

// unpacked are a request's headers without what HTTP clients offer of their own
// accord: a file is packed for who asks for gzip and nothing else, as E2B's clients
// do when they are told to. Packing takes the sandbox's processor time, more of it
// than most networks take to carry the file as it is, and what was packed has no
// digest in the record.
func unpacked(h http.Header) http.Header {
	accept := h.Get("Accept-Encoding")
	if strings.EqualFold(strings.TrimSpace(accept), "gzip") || !wire.AcceptsIdentity(accept) {
		return h
	}
	h = h.Clone()
	h.Del("Accept-Encoding")
	return h
}

// serveUpload answers with the files that were written, in E2B's words.
func (s *Server) serveUpload(w http.ResponseWriter, r *http.Request, in *inside) error {
	control := http.NewResponseController(w)
	defer control.SetReadDeadline(time.Time{})
	up := guest.Upload{
		Path: r.URL.Query().Get("path"), ContentType: r.Header.Get("Content-Type"), ContentEncoding: r.Header.Get("Content-Encoding"),
		Metadata: r.Header, Body: bounds.Reader{Reader: r.Body, Control: control},
	}
	send := s.uploadOne
	form, err := openForm(r, up.Body)
	if err == nil && up.Path == "" && form != nil {
		send = func(r *http.Request, in *inside, up guest.Upload) ([]guest.Written, error) {
			return s.uploadForm(r, in, up, form)
		}
	}
	if err != nil {
		return err
	}
	all, err := send(r, in, up)
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

// uploadOne writes the file that the request's path names.
func (s *Server) uploadOne(r *http.Request, in *inside, up guest.Upload) (all []guest.Written, err error) {
	err = s.touch(r.Context(), in, policy.WriteFile, []string{up.Path}, func(agent *guest.Client, paths []string) ([]sandbox.File, error) {
		t := session.NewTally()
		up.Path, up.Body = paths[0], io.TeeReader(up.Body, t)
		all, err = agent.Upload(r.Context(), up)
		// A form's bytes are more than the file's.
		return []sandbox.File{t.File(paths[0], up.ContentType != octets || up.ContentEncoding != "")}, err
	})
	return all, err
}

const octets = "application/octet-stream"

// uploadForm writes the files of a form that names them itself.
func (s *Server) uploadForm(r *http.Request, in *inside, up guest.Upload, form *multipart.Reader) ([]guest.Written, error) {
	ctx := r.Context()
	a, err := s.o.Sandboxes.BeginFiles(ctx, in.owner, in.box.ID, session.FileCall{Door: "e2b", Kind: policy.WriteFile, User: in.user})
	if err != nil {
		return nil, err
	}
	u := &formUpload{allow: func(name string) (string, error) { return a.Allow(ctx, name) }}
	reader, writer := io.Pipe()
	out := multipart.NewWriter(writer)
	passed := make(chan struct{})
	go func() {
		defer close(passed)
		writer.CloseWithError(u.pass(form, out))
	}()
	up.ContentType, up.ContentEncoding, up.Body = out.FormDataContentType(), "", reader
	all, err := a.Agent.Upload(ctx, up)
	reader.CloseWithError(errors.Join(err, io.ErrClosedPipe))
	<-passed
	if u.refused != nil {
		err = u.refused
	}
	return all, errors.Join(err, a.End(ctx, u.files, err))
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
	var f guest.Written
	err := s.touch(r.Context(), in, policy.WriteFile, append([]string{q.Destination}, q.Sources...), func(agent *guest.Client, paths []string) (_ []sandbox.File, err error) {
		f, err = agent.Compose(r.Context(), paths[1:], paths[0])
		return nil, err
	})
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, written(f))
	return nil
}
