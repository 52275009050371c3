// SPDX-License-Identifier: Apache-2.0

package e2b

import (
	"errors"
	"io"
	"maps"
	"mime"
	"net/http"
	"path"
	"strings"
	"time"

	"github.com/caisson-run/caisson/api"
	"github.com/caisson-run/caisson/internal/envd"
	"github.com/caisson-run/caisson/sandbox"
)

// Files go to and from the agent as streams. Nothing of them is kept here, and
// no name in them is a name of the host.

func (s *Server) serveDownload(w http.ResponseWriter, r *http.Request, in *inside) error {
	d, err := in.files.Read(r.Context(), r.URL.Query().Get("path"), unpacked(r.Header))
	if err != nil {
		return err
	}
	defer d.Close() // for a panic
	maps.Copy(w.Header(), d.Header)
	// Whatever it is, it is not shown as a page here.
	w.Header().Set("Content-Disposition", "attachment")
	w.WriteHeader(d.Status)
	if r.Method != http.MethodHead {
		_, err = io.CopyBuffer(api.NewTransferWriter(w), d, make([]byte, downloadPiece))
	}
	if err = errors.Join(err, d.CloseWithError(err)); err != nil {
		panic(http.ErrAbortHandler) // it has begun: only a break says that it is not whole
	}
	return nil
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
	if strings.EqualFold(strings.TrimSpace(accept), "gzip") || !envd.AcceptsIdentity(accept) {
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
	body := api.TransferReader{Reader: r.Body, Control: control}
	form, err := openForm(r, body)
	if err != nil {
		return err
	}
	p, o := r.URL.Query().Get("path"), sandbox.WriteOptions{Metadata: metadata(r.Header)}
	var all []sandbox.WrittenFile
	switch kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); {
	case form != nil && p == "":
		all, err = in.files.WriteAll(r.Context(), o, form.next)
	case form != nil:
		all, err = s.uploadFirst(r, in, p, form, o)
	case kind != octets:
		err = &apiError{http.StatusBadRequest, "unsupported content type: " + api.Quoted(r.Header.Get("Content-Type")) + ", expected multipart/form-data or " + octets}
	default:
		o.Encoding = r.Header.Get("Content-Encoding")
		all = make([]sandbox.WrittenFile, 1)
		all[0], err = in.files.Write(r.Context(), p, body, o)
	}
	if err != nil {
		return err
	}
	answer := make([]envd.Written, 0, len(all))
	for _, f := range all {
		answer = append(answer, written(f))
	}
	writeJSON(w, http.StatusOK, answer)
	return nil
}

const octets = "application/octet-stream"

// uploadFirst writes the one file of a form to the path that the request names.
func (s *Server) uploadFirst(r *http.Request, in *inside, p string, form *form, o sandbox.WriteOptions) ([]sandbox.WrittenFile, error) {
	_, file, err := form.next()
	if err == io.EOF {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	f, err := in.files.Write(r.Context(), p, file, o)
	if err != nil {
		return nil, err
	}
	if _, _, err = form.next(); err == nil {
		err = &apiError{http.StatusBadRequest, "the form has more than one file for the same path; only the first was written"}
	} else if err == io.EOF {
		err = nil
	}
	return []sandbox.WrittenFile{f}, err
}

// metadata is what a request's headers say of a file, by names in lower case.
func metadata(h http.Header) map[string]string {
	m := map[string]string{}
	for name, values := range h {
		if key, ok := strings.CutPrefix(name, envd.MetadataHeader); ok && key != "" {
			m[strings.ToLower(key)] = values[0]
		}
	}
	return m
}

func written(f sandbox.WrittenFile) envd.Written {
	return envd.Written{Name: path.Base(f.Path), Path: f.Path, Type: "file", Metadata: f.Metadata}
}

// serveCompose makes one file of several.
func (s *Server) serveCompose(w http.ResponseWriter, r *http.Request, in *inside) error {
	var q envd.ComposeRequest
	if err := readUnary(w, r, &q); errors.Is(err, sandbox.ErrExhausted) {
		return err
	} else if err != nil {
		return &apiError{http.StatusBadRequest, err.Error()}
	}
	f, err := in.files.Compose(r.Context(), q.Sources, q.Destination)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, written(f))
	return nil
}
