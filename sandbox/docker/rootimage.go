// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/caisson-run/caisson/guest"
	"github.com/caisson-run/caisson/sandbox"
)

// rootImage is an image that the engine is to have: the agent, and either a
// whole tree or a few directories and links.
type rootImage struct {
	agent   agentFile
	entries []entry
	tree    *os.File // an unpacked container image
	digest  string   // of that
}

// repository is what our images in an engine are called, before what tells them
// apart. No registry has such a name. (Not a tag: Podman 4 forgets an import's.)
const repository = "localhost/caisson-root-"

var validDigest = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^sha256:[0-9a-f]{64}$`) })

// name is the image's: what it was made from, so that an engine that has it
// has this one.
func (r *rootImage) name() string {
	sum := sha256.New()
	fmt.Fprintf(sum, "1 %s %s\n", r.agent.key, r.digest)
	for _, e := range r.entries {
		fmt.Fprintf(sum, "%q %q %v\n", e.path, e.link, e.sticky)
	}
	return repository + hex.EncodeToString(sum.Sum(nil))[:32] + ":latest"
}

// write writes the image's only layer.
func (r *rootImage) write(w io.Writer) error {
	t := tar.NewWriter(w)
	for _, e := range r.entries {
		h := &tar.Header{Typeflag: tar.TypeDir, Name: strings.TrimPrefix(e.path, "/") + "/", Mode: 0o755}
		if e.sticky {
			h.Mode = 0o1777
		}
		if e.link != "" {
			h.Typeflag, h.Name, h.Linkname, h.Mode = tar.TypeSymlink, strings.TrimPrefix(e.path, "/"), e.link, 0o777
		}
		if err := t.WriteHeader(h); err != nil {
			return err
		}
	}
	if r.tree != nil {
		if err := writeTree(t, fdPath(r.tree)); err != nil {
			return err
		}
	}
	if err := t.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: agentDir[1:] + "/", Mode: 0o755}); err != nil {
		return err
	}
	if err := t.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: agentDir[1:] + "/" + guest.AgentArgv0, Mode: 0o555, Size: r.agent.size}); err != nil {
		return err
	}
	if _, err := io.Copy(t, io.NewSectionReader(r.agent.file, 0, r.agent.size)); err != nil {
		return err
	}
	return t.Close()
}

// writeTree writes an unpacked image: directories, files and links, all root's.
// Nothing in it is followed.
func writeTree(t *tar.Writer, top string) error {
	return filepath.WalkDir(top+"/.", func(p string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(top, p)
		if err != nil || rel == "." {
			return err
		}
		if "/"+rel == agentDir {
			if e.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		h := &tar.Header{Name: rel, Mode: int64(info.Mode().Perm())}
		if info.Mode()&fs.ModeSticky != 0 {
			h.Mode |= 0o1000
		}
		if rel == "tmp" {
			// A runtime gives a tmpfs the mode of the directory it covers,
			// whatever was asked for.
			h.Mode = 0o1777
		}
		switch {
		case e.IsDir():
			h.Typeflag, h.Name = tar.TypeDir, rel+"/"
			return t.WriteHeader(h)
		case e.Type()&fs.ModeSymlink != 0:
			h.Typeflag = tar.TypeSymlink
			if h.Linkname, err = os.Readlink(p); err != nil {
				return err
			}
			return t.WriteHeader(h)
		case e.Type().IsRegular():
			return writeFile(t, h, p)
		}
		return nil // devices, sockets and pipes are not for sandboxes
	})
}

func writeFile(t *tar.Writer, h *tar.Header, p string) error {
	f, err := os.Open(p)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	h.Typeflag, h.Size = tar.TypeReg, info.Size()
	if err := t.WriteHeader(h); err != nil {
		return err
	}
	_, err = io.CopyN(t, f, h.Size)
	return err
}

// importLimit bounds one import; a large image on a slow disk takes minutes.
const importLimit = 10 * time.Minute

// importRoot gives the engine an image that it lacks, and takes away those of
// older versions of caisson.
func (e *engine) importRoot(ctx context.Context, r *rootImage) error {
	e.importing.Lock() // one at a time: the next one may find it there
	defer e.importing.Unlock()
	name := r.name()
	if err := e.call(ctx, http.MethodGet, "/images/"+name+"/json", nil, nil, nil); err == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, importLimit)
	defer cancel()
	reader, writer := io.Pipe()
	defer reader.Close()
	go func() { writer.CloseWithError(r.write(writer)) }()
	repo, tag, _ := strings.Cut(name, ":")
	resp, err := e.send(ctx, http.MethodPost, "/images/create",
		url.Values{"fromSrc": {"-"}, "repo": {repo}, "tag": {tag}, "changes": {"LABEL " + labelRoot + "=1"}}, reader, "application/x-tar")
	if err == nil {
		err = lastWord(resp.Body)
		resp.Body.Close()
	}
	if err != nil {
		return &sandbox.Error{Op: "give the engine a root filesystem", Kind: sandbox.ErrUnavailable, Problem: "it does not take it", Cause: err,
			Hint: "see whether its disk is full: docker system df"}
	}
	e.pruneRoots(ctx, name)
	return nil
}

// lastWord reads the engine's progress to its end, for the error in it.
func lastWord(r io.Reader) error {
	dec := json.NewDecoder(io.LimitReader(r, maxAnswer))
	for {
		var line struct {
			Error string `json:"error"`
		}
		switch err := dec.Decode(&line); {
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		case line.Error != "":
			return &answerError{http.StatusOK, line.Error}
		}
	}
}

// keepRoots is how long an image that is not the newest is kept: other
// versions of caisson, and other roots, may be in use side by side.
const keepRoots = 30 * 24 * time.Hour

// pruneRoots removes our images that will not be asked for again. One that a
// container uses is kept by the engine; whatever fails is tried next time.
func (e *engine) pruneRoots(ctx context.Context, newest string) {
	filters, err := json.Marshal(map[string][]string{"label": {labelRoot}})
	if err != nil {
		return
	}
	var images []struct {
		ID       string `json:"Id"`
		RepoTags []string
		Created  int64
	}
	if e.call(ctx, http.MethodGet, "/images/json", url.Values{"filters": {string(filters)}}, nil, &images) != nil {
		return
	}
	for _, i := range images {
		nameless := true
		for _, tag := range i.RepoTags {
			nameless = nameless && strings.HasPrefix(tag, "<none>")
			if tag == newest {
				i.Created = time.Now().Unix()
			}
		}
		if nameless || time.Since(time.Unix(i.Created, 0)) > keepRoots {
			_ = e.call(ctx, http.MethodDelete, "/images/"+i.ID, nil, nil, nil)
		}
	}
}

// agentFile is the guest agent's program.
type agentFile struct {
	file *os.File
	size int64
	key  string // changes with the program
}

// newAgentFile opens the agent. Its key is made from its size and its head,
// where the linker puts a digest of all that it was built from.
func newAgentFile() (agentFile, error) {
	fail := func(err error) (agentFile, error) {
		return agentFile{}, &sandbox.Error{Op: "start sandbox", Kind: sandbox.ErrUnavailable, Problem: "the guest agent is missing", Cause: err}
	}
	f, err := guest.OpenAgent()
	if err != nil {
		return fail(err)
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return fail(err)
	}
	var head bytes.Buffer
	if _, err := io.Copy(&head, io.NewSectionReader(f, 0, 16<<10)); err != nil {
		f.Close()
		return fail(err)
	}
	sum := sha256.Sum256(fmt.Appendf(head.Bytes(), "%d", info.Size()))
	return agentFile{f, info.Size(), hex.EncodeToString(sum[:])}, nil
}
