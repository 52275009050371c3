// SPDX-License-Identifier: Apache-2.0

package interpreter

import (
	"os"
	"path"
	"strings"
	"syscall"
	"time"

	"github.com/caisson-run/caisson/interpreter"
)

const (
	// maxSeen is how many entries are looked at for the files of a cell: a cell that
	// changes nothing must not wait.
	maxSeen  = 2000
	maxDepth = 16
	// clockSlack is what a kernel's clock for files may be behind.
	clockSlack = 10 * time.Millisecond
)

// changed lists the files below dir that were made or changed since a moment, with the
// rights of u. What is not looked at, more says.
func changed(u User, dir string, since time.Time) (files []interpreter.File, more bool) {
	w := &walk{since: since.Add(-clockSlack)}
	u.As(func() error { w.directory(path.Clean(dir), 0); return nil })
	return w.files, w.more
}

type walk struct {
	since  time.Time
	device uint64 // no other is looked at: below / are those of the kernel
	seen   int
	files  []interpreter.File
	more   bool
}

// directory looks at the entries of a directory, and then below it, so that what is
// near is seen.
func (w *walk) directory(dir string, depth int) {
	d, err := os.Open(dir)
	if err != nil {
		return
	}
	if depth == 0 {
		if i, err := d.Stat(); err == nil {
			w.device = i.Sys().(*syscall.Stat_t).Dev
		}
	}
	names, _ := d.Readdirnames(maxSeen - w.seen + 1)
	d.Close()
	var below []string
	for _, name := range names {
		if w.seen++; w.seen > maxSeen {
			w.more = true
			return
		}
		var st syscall.Stat_t
		full := path.Join(dir, name)
		if syscall.Lstat(full, &st) != nil {
			continue
		}
		switch st.Mode & syscall.S_IFMT {
		case syscall.S_IFDIR:
			if !strings.HasPrefix(name, ".") && name != "node_modules" && name != "__pycache__" && depth < maxDepth && st.Dev == w.device {
				below = append(below, full)
			}
		case syscall.S_IFREG:
			if time.Unix(st.Ctim.Unix()).Before(w.since) {
				continue
			}
			if len(w.files) == interpreter.MaxFiles {
				w.more = true
				return
			}
			w.files = append(w.files, interpreter.File{
				Path: strings.ToValidUTF8(full, "\ufffd"), Size: st.Size, Type: mimeTypes[strings.ToLower(path.Ext(name))],
			})
		}
	}
	for _, b := range below {
		w.directory(b, depth+1)
	}
}

// mimeTypes are those of files that cells make, by their ends. What else there is has none.
var mimeTypes = map[string]string{
	".csv": "text/csv", ".tsv": "text/tab-separated-values", ".txt": "text/plain", ".log": "text/plain",
	".md": "text/markdown", ".html": "text/html", ".htm": "text/html", ".css": "text/css", ".xml": "application/xml",
	".json": "application/json", ".jsonl": "application/jsonl", ".yaml": "application/yaml", ".yml": "application/yaml",
	".py": "text/x-python", ".js": "text/javascript", ".ts": "text/typescript", ".sh": "application/x-sh", ".sql": "application/sql",
	".ipynb": "application/x-ipynb+json", ".pdf": "application/pdf", ".tex": "application/x-tex",
	".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".gif": "image/gif", ".webp": "image/webp", ".svg": "image/svg+xml",
	".mp3": "audio/mpeg", ".wav": "audio/wav", ".mp4": "video/mp4", ".webm": "video/webm",
	".zip": "application/zip", ".gz": "application/gzip", ".tar": "application/x-tar",
	".parquet": "application/vnd.apache.parquet", ".sqlite": "application/vnd.sqlite3", ".db": "application/vnd.sqlite3",
	".xls": "application/vnd.ms-excel", ".xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
	".docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
	".pptx": "application/vnd.openxmlformats-officedocument.presentationml.presentation",
}
