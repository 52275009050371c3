// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/sandbox"
)

// oldRecord is a record as an older caisson left it: three records in the database, and
// eight in audit.tail, in six frames.
func oldRecord(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	must(t, copyInto(filepath.Join("testdata", "tail"), dir, dbFile, keyFile, headFile, tailFile))
	return dir
}

const oldRecords, oldStored = 11, 3

// count is how many records the database of dir holds.
func count(t testing.TB, dir string) (n int) {
	t.Helper()
	db := raw(t, dir)
	defer db.Close()
	must(t, db.QueryRow("SELECT count(*) FROM records").Scan(&n))
	return n
}

// wantTakenOver looks whether the record of dir is whole, and in the database alone.
func wantTakenOver(t testing.TB, dir string, records int64) {
	t.Helper()
	rep := verify(t, dir)
	wantOK(t, rep)
	if rep.Records != records || int64(count(t, dir)) != records {
		t.Errorf("%d records, and %d in the database; want %d", rep.Records, count(t, dir), records)
	}
	if exists(filepath.Join(dir, tailFile)) {
		t.Error("audit.tail is still there")
	}
}

// TestTakeOver: what an older caisson left in audit.tail is read and written as if it had
// always been in the database, by the first process that opens the record.
func TestTakeOver(t *testing.T) {
	for _, readOnly := range []bool{false, true} {
		dir := oldRecord(t)
		l, err := Open(ctx, Options{Dir: dir, ReadOnly: readOnly})
		must(t, err)
		_, all := list(t, l, Filter{OldestFirst: true})
		if len(all) != 6 || all[1].Status != Allowed || all[2].Status != Refused || all[3].Call.Kind != KindConnection || all[5].Command[2] != "c" {
			t.Fatalf("%+v", all)
		}
		d, err := l.Show(ctx, all[5].ID)
		must(t, err)
		if string(d.Stdout) != "out of c" || string(d.Code) != "print(c)" {
			t.Errorf("%q, %q", d.Stdout, d.Code)
		}
		must(t, l.Close())
		wantTakenOver(t, dir, oldRecords)
		must(t, appendOne(dir))
		wantTakenOver(t, dir, oldRecords+1)
	}
}

// TestTakeOverAtOnce has many open the record of an older caisson at the same moment.
func TestTakeOverAtOnce(t *testing.T) {
	dir := oldRecord(t)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			if i%2 == 0 {
				wantOK(t, verify(t, dir))
			} else if err := appendOne(dir); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	wantTakenOver(t, dir, oldRecords+4)
}

// TestTakeOverHeld waits for a run of the older caisson that is appending.
func TestTakeOverHeld(t *testing.T) {
	dir := oldRecord(t)
	path := filepath.Join(dir, tailFile)
	b, frames := oldTail(t), oldFrames(t, oldTail(t))
	last := int64(len(frames[len(frames)-1]))
	end := oldSector(t, b).End
	must(t, os.WriteFile(path, b[:end-last], 0o600)) // it has not written its frame yet
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	must(t, err)
	defer f.Close()
	must(t, unix.Flock(int(f.Fd()), unix.LOCK_EX))
	done := make(chan error)
	go func() { done <- appendOne(dir) }()
	_, err = f.WriteAt(b[end-last:], end-last)
	must(t, errors.Join(err, unix.Flock(int(f.Fd()), unix.LOCK_UN)))
	must(t, <-done)
	wantTakenOver(t, dir, oldRecords+1)
}

// TestTakeOverAgain: who was killed after the commit left the file. It is removed, and
// nothing is recorded twice.
func TestTakeOverAgain(t *testing.T) {
	dir := oldRecord(t)
	must(t, appendOne(dir))
	must(t, copyInto(filepath.Join("testdata", "tail"), dir, tailFile))
	must(t, appendOne(dir))
	wantTakenOver(t, dir, oldRecords+2)
}

// TestTakeOverAfterCrash takes over what a killed writer or a power cut left: an older
// sector, no sector, and a frame that was not written to its end.
func TestTakeOverAfterCrash(t *testing.T) {
	b := oldTail(t)
	s, frames := oldSector(t, b), oldFrames(t, b)
	first, _, _ := parseTailFrame(frames[0], s.Head.Installation)
	torn := slices.Concat(b[:s.End], frames[0][:len(frames[0])/2], make([]byte, 4096))
	for name, tail := range map[string][]byte{
		"as it was":              b,
		"an older sector":        withSector(t, b, tailSector{End: tailStart + int64(len(frames[0])), Head: first.head}),
		"no sector":              append(make([]byte, tailStart), b[tailStart:]...),
		"a frame that was torn":  torn,
		"without zeros after it": b[:s.End],
	} {
		dir := oldRecord(t)
		must(t, os.WriteFile(filepath.Join(dir, tailFile), tail, 0o600))
		must(t, appendOne(dir))
		t.Log(name)
		wantTakenOver(t, dir, oldRecords+1)
	}
	// An empty file is what the older caisson leaves that is refused.
	dir := oldRecord(t)
	must(t, appendOne(dir))
	must(t, os.WriteFile(filepath.Join(dir, tailFile), nil, 0o600))
	must(t, appendOne(dir))
	wantTakenOver(t, dir, oldRecords+2)
}

// TestTakeOverTampered is the matrix of what someone without the key can do to audit.tail,
// our own records put there again among it. Verify finds it, nothing is built on it, and
// nothing is taken.
func TestTakeOverTampered(t *testing.T) {
	b := oldTail(t)
	s, frames := oldSector(t, b), oldFrames(t, b)
	last := len(frames) - 1
	forged, forgedHead := forgedFrame(t, s.Head)
	before, _, _ := parseTailFrame(frames[last-1], s.Head.Installation)
	swapped := slices.Clone(frames)
	swapped[0], swapped[1] = swapped[1], swapped[0]
	file := func(b []byte) func(*testing.T, string) {
		return func(t *testing.T, path string) { must(t, os.WriteFile(path, b, 0o600)) }
	}
	for name, do := range map[string]func(t *testing.T, path string){
		"removed":                               func(t *testing.T, path string) { must(t, os.Remove(path)) },
		"emptied":                               file(nil),
		"zeros":                                 file(make([]byte, len(b))),
		"cut off":                               file(b[:s.End-1]),
		"no frames":                             file(b[:tailStart]),
		"a sector of nothing":                   file(append(bytes.Repeat([]byte(" "), tailStart), b[tailStart:]...)),
		"too long":                              file(append(bytes.Clone(b), make([]byte, maxTail)...)),
		"a body":                                file(replaced(t, b, "uid:1000", "uid:1001")),
		"content":                               file(replaced(t, b, "out of a", "out of z")),
		"the last head's signature":             file(slices.Concat(b[:s.End-1], []byte{b[s.End-1] ^ 1}, b[s.End:])),
		"the last frame cut off":                file(tailOf(t, s.Head, frames[:last]...)),
		"the last frame cut off, with its head": file(tailOf(t, before.head, frames[:last]...)),
		"a frame left out":                      file(tailOf(t, s.Head, slices.Delete(slices.Clone(frames), 1, 2)...)),
		"the first frame left out":              file(tailOf(t, s.Head, frames[1:]...)),
		"two frames swapped":                    file(tailOf(t, s.Head, swapped...)),

		"the last frame again":                     file(tailOf(t, s.Head, append(slices.Clone(frames), frames[last])...)),
		"the last frame again, behind the end":     file(slices.Concat(b[:s.End], frames[last])),
		"the first frame again":                    file(tailOf(t, s.Head, append(slices.Clone(frames), frames[0])...)),
		"the first frame again, behind the end":    file(slices.Concat(b[:s.End], frames[0])),
		"the first frame twice":                    file(tailOf(t, s.Head, slices.Insert(slices.Clone(frames), 0, frames[0])...)),
		"all frames again":                         file(tailOf(t, s.Head, slices.Concat(frames, frames)...)),
		"a record of the database's as a frame":    file(slices.Concat(b[:s.End], storedFrame(t))),
		"a record of the database's, and no other": file(append(make([]byte, tailStart), storedFrame(t)...)),

		"signed with another key":                 file(tailOf(t, forgedHead, append(slices.Clone(frames), forged)...)),
		"signed with another key, behind the end": file(slices.Concat(b[:s.End], forged)),
		"a head that is signed with another key":  file(withSector(t, b, tailSector{End: s.End, Head: forgedHead})),
		"a head of another installation":          file(withSector(t, b, tailSector{End: s.End, Head: Checkpoint{Installation: "other", Count: 1}})),
		"a link": func(t *testing.T, path string) {
			must(t, errors.Join(os.Rename(path, path+".x"), os.Symlink(path+".x", path)))
		},
		"a directory": func(t *testing.T, path string) { must(t, errors.Join(os.Remove(path), os.Mkdir(path, 0o700))) },
		"a pipe":      func(t *testing.T, path string) { must(t, errors.Join(os.Remove(path), unix.Mkfifo(path, 0o600))) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := oldRecord(t)
			do(t, filepath.Join(dir, tailFile))
			if rep := verify(t, dir); rep.OK() {
				t.Error("Verify finds nothing")
			}
			if err := appendOne(dir); !errors.Is(err, sandbox.ErrUnavailable) || !isDamage(err) {
				t.Errorf("appending to it: %v", err)
			}
			if rep := verify(t, dir); rep.OK() {
				t.Error("after that Verify finds nothing")
			}
			if n := count(t, dir); n != oldStored {
				t.Errorf("the database holds %d records", n)
			}
			wantBehind(t, dir)
		})
	}
}

// storedFrame is the database's last record as a frame, with the head that was signed
// for it: who can write the files has both.
func storedFrame(t testing.TB) []byte {
	t.Helper()
	dir := oldRecord(t)
	must(t, os.Remove(filepath.Join(dir, tailFile)))
	l, err := Open(ctx, Options{Dir: dir, ReadOnly: true})
	must(t, err)
	defer l.Close()
	head, err := l.Checkpoint(ctx)
	must(t, err)
	r := new(record)
	must(t, l.r.QueryRow("SELECT seq, at, entry, event, prev, digest, signature, body_digest, body FROM records WHERE seq = ?", head.Count).
		Scan(&r.seq, &r.at, &r.entry, &r.event, &r.prev, &r.digest, &r.signature, &r.bodyDigest, &r.body))
	return encodeFrame(&tailFrame{records: []*record{r}, kept: [][][]byte{{[]byte("out of database")}}, head: head})
}

// wantBehind looks whether readers give what the database holds, and say that it is not all.
func wantBehind(t *testing.T, dir string) {
	t.Helper()
	if !exists(filepath.Join(dir, tailFile)) {
		return
	}
	l, err := Open(ctx, Options{Dir: dir, ReadOnly: true})
	must(t, err)
	defer l.Close()
	var failed error
	calls := 0
	for _, err := range l.Query(ctx, Filter{}) {
		if failed = err; err == nil {
			calls++
		}
	}
	if calls != 1 || !isDamage(failed) {
		t.Errorf("Query: %d calls, %v", calls, failed)
	}
	var out bytes.Buffer
	for _, format := range []string{JSONL, CSV, OCSF} {
		if err := l.Export(ctx, &out, format, Filter{}); !isDamage(err) || bytes.Contains(out.Bytes(), []byte(`"checkpoint"`)) {
			t.Errorf("%s: %v", format, err)
		}
	}
	if _, err := l.Checkpoint(ctx); !isDamage(err) {
		t.Errorf("Checkpoint: %v", err)
	}
	if _, err := l.Show(ctx, "aud_none"); !isDamage(err) {
		t.Errorf("Show: %v", err)
	}
	if err := l.Follow(ctx, Filter{}, func(Record) bool { return false }); !isDamage(err) {
		t.Errorf("Follow: %v", err)
	}
}

// TestTakeOverOfAnotherHistory puts the tail, or that and audit.head, beside a database
// that went on by itself. Who has the key made both.
func TestTakeOverOfAnotherHistory(t *testing.T) {
	for _, names := range [][]string{{tailFile}, {tailFile, headFile}} {
		dir := oldRecord(t)
		must(t, errors.Join(os.Remove(filepath.Join(dir, tailFile)), os.Remove(filepath.Join(dir, headFile))))
		l := &Log{dir: dir}
		must(t, l.loadKey(false))
		db := raw(t, dir)
		l.inst = oldSector(t, oldTail(t)).Head.Installation
		head, err := storedHead(ctx, db, l.inst)
		must(t, errors.Join(err, db.Close(), l.makeHead(head)))
		for range 9 {
			must(t, appendOne(dir))
		}
		must(t, copyInto(filepath.Join("testdata", "tail"), dir, names...))
		if rep := verify(t, dir); rep.OK() {
			t.Errorf("%q: Verify finds nothing", names)
		}
		if err := appendOne(dir); !isDamage(err) {
			t.Errorf("%q: appending to it: %v", names, err)
		}
	}
}

// TestTakeOverEveryByte changes bytes of the tail: nothing is taken for what it was not.
func TestTakeOverEveryByte(t *testing.T) {
	b := oldTail(t)
	step := int64(7)
	if testing.Short() || raceDetector {
		step = 61
	}
	for at := int64(0); at < oldSector(t, b).End; at += step {
		dir := oldRecord(t)
		changed := bytes.Clone(b)
		changed[at] ^= 0x20
		must(t, os.WriteFile(filepath.Join(dir, tailFile), changed, 0o600))
		if rep := verify(t, dir); rep.OK() {
			wantTakenOver(t, dir, oldRecords)
		}
		must(t, os.RemoveAll(dir))
		if t.Failed() {
			t.Fatalf("byte %d", at)
		}
	}
}

// TestTakeOverRedacted: what was in the tail can be redacted, and is in no file then.
func TestTakeOverRedacted(t *testing.T) {
	dir := oldRecord(t)
	path := filepath.Join(dir, tailFile)
	must(t, os.Link(path, path+".link")) // shows what becomes of the file's bytes
	l := open(t, dir)
	_, all := list(t, l, Filter{OldestFirst: true})
	d, err := l.Show(ctx, all[1].ID)
	must(t, err)
	if where := grep(t, dir, "out of a"); where != dbFile && where != dbFile+"-wal" {
		t.Errorf("it is in %q", where)
	}
	must(t, l.Redact(ctx, d.Ending.Stdout.SHA256, "why"))
	if where := grep(t, dir, "out of a"); where != "" {
		t.Errorf("it is still in %s", where)
	}
	wantOK(t, verify(t, dir))
}

// TestTakeOverUnwritable: a reader who cannot write says why it does not see all.
func TestTakeOverUnwritable(t *testing.T) {
	onlyRootMounts(t)
	cmd := helper("takeover-unwritable", oldRecord(t))
	cmd.SysProcAttr = &unix.SysProcAttr{Cloneflags: unix.CLONE_NEWNS}
	if out, err := cmd.Output(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func takeOverUnwritable(args []string) error {
	dir := args[0]
	err := errors.Join(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""), unix.Mount(dir, dir, "", unix.MS_BIND, ""),
		unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""))
	if err != nil {
		return err
	}
	l, err := Open(ctx, Options{Dir: dir, ReadOnly: true})
	if err != nil {
		return err
	}
	defer l.Close()
	if _, err := l.Verify(ctx); !errors.Is(err, sandbox.ErrUnavailable) || sandbox.Hint(err) == "" {
		return errors.Join(errors.New("Verify does not say that it has not seen all"), err)
	}
	for _, err = range l.Query(ctx, Filter{}) {
	}
	if !errors.Is(err, sandbox.ErrUnavailable) {
		return errors.Join(errors.New("Query does not say that it has not seen all"), err)
	}
	return nil
}

// TestOlderCaisson: one that would still append to audit.tail finds another schema, also
// if it has the record open. And an older record is read, and written to once it has been
// brought up to date.
func TestOlderCaisson(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir)
	call(t, l, "a")
	if err := checkLayout(ctx, l.w, 2); err == nil {
		t.Error("it would find nothing")
	}
	must(t, l.Close())
	execute(t, dir, "PRAGMA user_version = 1")
	wantOK(t, verify(t, dir))
	must(t, appendOne(dir))
	wantOK(t, verify(t, dir))
}
