// SPDX-License-Identifier: Apache-2.0

//go:build linux

package drivertest

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caisson-run/caisson/sandbox"
)

const mib = 1 << 20

func itoa(n int) string { return strconv.Itoa(n) }

var limitTests = []test{
	{name: "memory kills and is named", run: testMemory},
	{name: "memory within the limit is fine", run: testMemoryWithin},
	{name: "memory of many processes counts together", run: testMemorySum},
	{name: "memory files count", run: testMemoryShm},
	{name: "writing to disk is no memory", run: testDiskIsNoMemory},
	{name: "processes", run: testProcessLimit},
	{name: "threads count", run: testThreads},
	{name: "open files", run: testOpenFiles},
	{name: "file size", run: testFileSize},
	{name: "disk", run: testDisk},
	{name: "disk is one budget", run: testDiskSum},
	{name: "deleted files still count", run: testDiskDeleted},
	{name: "inodes", run: testInodes},
	{name: "tmp is apart", run: testTmp},
	{name: "cpu share", run: testCPUShare},
	{name: "cpu time can be watched", run: testSample},
	{name: "looking to the very end is safe", run: testSampleToTheEnd},
	{name: "rlimits cannot be raised", run: testRaise},
	{name: "the least and the most of files and processes", run: testMinAndMax},
	{name: "an ordinary failure is no limit", run: testNoLimit},
}

const eat = `
b = bytearray(int(sys.argv[1]) << 20)
for i in range(0, len(b), 4096): b[i] = 1
print('survived')
`

// testMemory: a limit that is only emulated may show as a failed allocation.
func testMemory(t *testing.T, s *suite, r road) {
	s.need(t, sandbox.LimitMemory)
	w := s.fixture(t, limit(func(l *sandbox.Limits) { l.Memory = 96 * mib }))
	o := w.run(t, r, "python3", "-I", "-S", "-c", prelude+eat, "600")
	if strings.Contains(o.out, "survived") {
		t.Fatalf("600 MiB in a limit of 96: %s", o.describe())
	}
	if s.caps.Limits[sandbox.LimitMemory].Enforcement == sandbox.Emulated && strings.Contains(o.errs, "MemoryError") {
		return
	}
	o.exceeded(t, sandbox.LimitMemory)
	if o.Signal != "SIGKILL" || o.ExitCode != nil {
		t.Errorf("want SIGKILL and no exit code: %s", o.describe())
	}
}

func testMemoryWithin(t *testing.T, s *suite, r road) {
	w := s.fixture(t, limit(func(l *sandbox.Limits) { l.Memory = 128 * mib }))
	o := w.run(t, r, "python3", "-I", "-S", "-c", prelude+eat, "96").ok(t)
	if o.Resource != "" || has(o.LimitsHit, sandbox.LimitMemory) {
		t.Errorf("memory is said to have been hit: %s", o.describe())
	}
}

func testMemorySum(t *testing.T, s *suite, r road) {
	s.need(t, sandbox.LimitMemory)
	if s.caps.Limits[sandbox.LimitMemory].Enforcement == sandbox.Emulated {
		s.lacks(t, "memory is only emulated, which may mean per process")
	}
	w := s.fixture(t, limit(func(l *sandbox.Limits) { l.Memory = 96 * mib }))
	o := w.run(t, r, "python3", "-I", "-S", "-c", prelude+`
for n in range(8):
    if os.fork() == 0:
        b = bytearray(60 << 20)
        for i in range(0, len(b), 4096): b[i] = 1
        time.sleep(600); os._exit(0)
time.sleep(600)
print('survived')`)
	o.exceeded(t, sandbox.LimitMemory)
}

// What lies in /dev/shm is memory.
func testMemoryShm(t *testing.T, s *suite, r road) {
	s.need(t, sandbox.LimitMemory)
	w := s.fixture(t, limit(func(l *sandbox.Limits) { l.Memory = 96 * mib }), func(spec *sandbox.Spec) {
		for i := range spec.Scratch {
			if spec.Scratch[i].Memory {
				spec.Scratch[i].Size = 16 * mib
			}
		}
	})
	o := w.run(t, r, "sh", "-c", "head -c 64M /dev/zero > /dev/shm/big; stat -c %s /dev/shm/big")
	maximum := int64(16 * mib)
	if s.shm > 0 { // what was asked for is no more than the memory limit
		maximum = s.shm
	}
	if size, err := strconv.ParseInt(strings.TrimSpace(o.out), 10, 64); err == nil && size > maximum {
		t.Errorf("%d bytes in a /dev/shm of %d", size, maximum)
	}
}

// A level that has no other place for scratch than memory says so, and then the
// memory limit is what a large file meets.
func testDiskIsNoMemory(t *testing.T, s *suite, r road) {
	w := s.fixture(t, limit(func(l *sandbox.Limits) { l.Memory = 96 * mib; l.Disk = 512 * mib }))
	o := w.run(t, r, "sh", "-c", "head -c 160M /dev/zero > big && stat -c %s big")
	if s.caps.ScratchInMemory {
		if s.caps.Limits[sandbox.LimitMemory].Enforcement == sandbox.Enforced {
			o.exceeded(t, sandbox.LimitMemory)
		}
		if !strings.Contains(s.caps.Limits[sandbox.LimitDisk].Detail, "memory") {
			t.Error("what Probe says of the disk limit does not say that scratch is memory")
		}
		s.lacks(t, "scratch is memory and counts as such")
	}
	o.ok(t)
	if strings.TrimSpace(o.out) != itoa(160*mib) {
		t.Errorf("wrote %q", o.out)
	}
}

func testProcessLimit(t *testing.T, s *suite, r road) {
	s.need(t, sandbox.LimitProcesses)
	var got struct {
		Made int
		Why  string
	}
	w := s.fixture(t, limit(func(l *sandbox.Limits) { l.Processes = 20 }))
	w.python(t, r, `
made, why, pids = 0, 'none', []
for n in range(200):
    try: pid = os.fork()
    except OSError as e: why = errno.errorcode[e.errno]; break
    if pid == 0: time.sleep(600); os._exit(0)
    made += 1; pids.append(pid)
for p in pids: os.kill(p, 9)
say({'Made': made, 'Why': why})`, &got)
	// A level may count without the first process, which it made itself.
	if got.Why != "EAGAIN" || got.Made > 20 || got.Made < 5 {
		t.Errorf("made %d processes, then %s; the limit is 20", got.Made, got.Why)
	}
}

func testThreads(t *testing.T, s *suite, r road) {
	s.need(t, sandbox.LimitProcesses)
	var made int
	w := s.fixture(t, limit(func(l *sandbox.Limits) { l.Processes = 20 }))
	w.python(t, r, `
import threading
made, stop = 0, threading.Event()
try:
    for n in range(200):
        threading.Thread(target=stop.wait).start(); made += 1
except RuntimeError: pass
stop.set()
say(made)`, &made)
	if made > 20 || made < 5 {
		t.Errorf("made %d threads; the limit is 20", made)
	}
}

func testOpenFiles(t *testing.T, s *suite, r road) {
	s.need(t, sandbox.LimitOpenFiles)
	var got struct {
		Open int
		Why  string
	}
	w := s.fixture(t, limit(func(l *sandbox.Limits) { l.OpenFiles = 64 }))
	w.python(t, r, `
files = []
why = attempt(lambda: [files.append(open('/dev/null')) for _ in range(1000)])
n = len(files)
for f in files: f.close()
say({'Open': n, 'Why': why})`, &got)
	if got.Why != "EMFILE" || got.Open > 64 || got.Open < 50 {
		t.Errorf("opened %d files, then %q; the limit is 64", got.Open, got.Why)
	}
}

func testFileSize(t *testing.T, s *suite, r road) {
	s.need(t, sandbox.LimitFileSize)
	w := s.fixture(t, limit(func(l *sandbox.Limits) { l.FileSize = mib }))
	var got struct {
		Why  string
		Size int64
	}
	w.python(t, r, `
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
why = attempt(lambda: put('f', bytes(4 << 20)))
say({'Why': why, 'Size': os.stat('f').st_size})`, &got)
	if got.Why != "EFBIG" || got.Size > mib {
		t.Errorf("a file of %d bytes, then %q; the limit is 1 MiB", got.Size, got.Why)
	}
}

// fillTo writes zeros until it fails.
const fillTo = `
def fill(path):
    n = 0
    try:
        with open(path, 'ab', 0) as f:
            while n < 256 << 20: n += f.write(bytes(65536))
    except OSError as e: return [n, errno.errorcode[e.errno]]
    return [n, None]
`

// full demands that fill stopped for want of space, near size.
func full(t *testing.T, what string, got []any, size float64) {
	t.Helper()
	if len(got) != 2 || (got[1] != "ENOSPC" && got[1] != "EDQUOT") {
		t.Errorf("%s ended with %v, want no space", what, got)
		return
	}
	if n, _ := got[0].(float64); n > size*1.05 || n < size*0.7 {
		t.Errorf("%s took %v bytes, the limit is %v", what, n, size)
	}
}

func testDisk(t *testing.T, s *suite, r road) {
	s.need(t, sandbox.LimitDisk)
	var got [][]any
	w := s.fixture(t, limit(func(l *sandbox.Limits) { l.Disk = 16 * mib }))
	o := w.python(t, r, fillTo+`
a = fill('big'); os.unlink('big'); b = fill('again'); say([a, b])`, &got)
	full(t, "a full disk", got[0], 16*mib)
	full(t, "the disk after a file was deleted", got[1], 16*mib)
	if o.Resource != "" {
		t.Errorf("a failed write is no end: %s", o.describe())
	}
}

func testDiskSum(t *testing.T, s *suite, r road) {
	s.need(t, sandbox.LimitDisk)
	var got [][]any
	w := s.fixture(t, limit(func(l *sandbox.Limits) { l.Disk = 16 * mib }), func(spec *sandbox.Spec) {
		spec.Scratch = append(spec.Scratch, sandbox.Scratch{Target: "/var/cache/build"})
	})
	w.python(t, r, fillTo+`say([fill('big'), fill('/var/cache/build/big')])`, &got)
	sum := 0.0
	for _, f := range got {
		if f[1] == nil {
			t.Errorf("a write never failed: %v", got)
		}
		n, _ := f[0].(float64)
		sum += n
	}
	if sum > 16*mib*1.05 || sum < 8*mib {
		t.Errorf("two writable paths took %v bytes together, the limit is %d", sum, 16*mib)
	}
}

func testDiskDeleted(t *testing.T, s *suite, r road) {
	s.need(t, sandbox.LimitDisk)
	var got []any
	w := s.fixture(t, limit(func(l *sandbox.Limits) { l.Disk = 16 * mib }))
	w.python(t, r, fillTo+`
f = open('held', 'wb', 0); f.write(bytes(10 << 20)); os.unlink('held')
say(fill('big'))`, &got)
	full(t, "the disk beside a deleted open file of 10 MiB", got, 6*mib)
}

func testInodes(t *testing.T, s *suite, r road) {
	s.need(t, sandbox.LimitInodes)
	var got struct {
		Made int
		Why  string
	}
	w := s.fixture(t, limit(func(l *sandbox.Limits) { l.Inodes = 300 }))
	w.python(t, r, `
made, why = 0, None
for n in range(3000):
    why = attempt(lambda: (put('f%d' % n, b'') if n % 2 else os.mkdir('d%d' % n)))
    if why: break
    made += 1
say({'Made': made, 'Why': why or ''})`, &got)
	if got.Why != "ENOSPC" && got.Why != "EDQUOT" || got.Made > 300 || got.Made < 100 {
		t.Errorf("made %d files and directories, then %q; the limit is 300", got.Made, got.Why)
	}
}

func testTmp(t *testing.T, s *suite, r road) {
	s.need(t, sandbox.LimitTmp)
	var got [][]any
	w := s.fixture(t, limit(func(l *sandbox.Limits) { l.Tmp = 8 * mib; l.Disk = 32 * mib }))
	w.python(t, r, fillTo+`say([fill('/tmp/big'), fill('big')])`, &got)
	full(t, "/tmp", got[0], 8*mib)
	full(t, "the disk beside a full /tmp", got[1], 32*mib)
}

func testCPUShare(t *testing.T, s *suite, r road) {
	if s.caps.Limits[sandbox.LimitCPUs].Enforcement != sandbox.Enforced {
		s.lacks(t, "cpus is not enforced: "+s.caps.Limits[sandbox.LimitCPUs].Detail)
	}
	w := s.fixture(t, limit(func(l *sandbox.Limits) { l.CPUs = 0.4 }))
	// What a kernel of the sandbox's own counts inside goes on while it is
	// throttled; what the host measured counts.
	o := w.run(t, r, "python3", "-I", "-S", "-c", prelude+`
end = time.monotonic() + 2.5
if os.fork() == 0:
    while time.monotonic() < end: pass
    os._exit(0)
while time.monotonic() < end: pass
os.wait()`).ok(t)
	if o.CPUMS == nil {
		s.needFigures(t, r)
		t.Fatal("CPU time was not measured")
	}
	// Two burners would take twice the wall time of two processors.
	if share := float64(*o.CPUMS) / float64(o.WallMS); share > 0.4*1.35 {
		t.Errorf("%d ms of CPU in %d ms: a share of %.2f, the limit is 0.4", *o.CPUMS, o.WallMS, share)
	}
}

func testSample(t *testing.T, s *suite, r road) {
	s.need(t, sandbox.LimitCPUTime)
	if s.programs != nil {
		s.needFigures(t, r)
	}
	w := s.fixture(t)
	ctx, cancel := context.WithTimeout(t.Context(), runLimit)
	defer cancel()
	x := w.exec("sh", "-c", "while :; do :; done")
	var mu sync.Mutex
	var last time.Duration
	samples := 0
	x.SampleEvery = 50 * time.Millisecond
	x.Sample = func(u sandbox.Usage) {
		mu.Lock()
		defer mu.Unlock()
		if u.CPU == nil {
			return
		}
		if *u.CPU < last {
			t.Errorf("CPU time went back from %v to %v", last, *u.CPU)
		}
		last = *u.CPU
		if samples++; samples > 1 && last > 400*time.Millisecond {
			cancel() // as the session does when a limit is passed
		}
	}
	start := time.Now()
	o := w.start(t, ctx, r, x)
	if o.Signal != "SIGKILL" || time.Since(start) > runLimit-time.Second {
		t.Errorf("a burner was not ended by what was sampled: %s", o.describe())
	}
}

// testSampleToTheEnd asks as often as it can while the sandbox comes and goes.
func testSampleToTheEnd(t *testing.T, s *suite, r road) {
	for range 6 {
		w := s.fixture(t)
		x := w.exec("sh", "-c", "sleep 0.03")
		x.SampleEvery, x.Sample = time.Millisecond, func(sandbox.Usage) {}
		w.start(t, timeout(t), r, x).ok(t)
	}
}

func testRaise(t *testing.T, s *suite, r road) {
	var got map[string]string
	w := s.fixture(t, limit(func(l *sandbox.Limits) { l.OpenFiles, l.Processes, l.FileSize = 64, 32, mib }))
	w.python(t, r, `
import resource
def up(which):
    try: resource.setrlimit(which, (1 << 20 if which != resource.RLIMIT_FSIZE else 1 << 40,) * 2)
    except (OSError, ValueError): return 'refused'
    return 'RAISED'
say({n: up(getattr(resource, 'RLIMIT_' + n)) for n in ('NOFILE', 'NPROC', 'FSIZE')})`, &got)
	for name, result := range got {
		if result != "refused" {
			t.Errorf("RLIMIT_%s was raised", name)
		}
	}
}

// testMinAndMax: what is not refused is enough to start with; and what is too little
// is refused as such, unless a level can start with it.
func testMinAndMax(t *testing.T, s *suite, r road) {
	files, processes := sandbox.LeastOpenFiles, 1
	if r.name == living {
		files, processes = sandbox.LeastAgentFiles, sandbox.LeastAgentProcesses
	}
	const maximum = 4 << 20 // PID_MAX_LIMIT
	for _, l := range []sandbox.Limits{{OpenFiles: files, Processes: processes}, {OpenFiles: files, Processes: maximum}} {
		w := s.fixture(t, limit(func(all *sandbox.Limits) { all.OpenFiles, all.Processes = l.OpenFiles, l.Processes }))
		if o := w.run(t, r, "sh", "-c", "ulimit -n").ok(t); o.out != itoa(files)+"\n" {
			t.Errorf("%+v: %q", l, o.out)
		}
	}
	for n := 1; n < files; n += 3 {
		s.startsOrRefuses(t, r, "open_files", func(l *sandbox.Limits) { l.OpenFiles = n })
	}
	for n := 1; n < processes; n += 3 {
		s.startsOrRefuses(t, r, "processes", func(l *sandbox.Limits) { l.Processes = n })
	}
}

func (s *suite) startsOrRefuses(t *testing.T, r road, name string, change func(*sandbox.Limits)) {
	t.Helper()
	w := s.fixture(t, limit(change))
	_, err := r.run(timeout(t), w.spec, w.exec("true"))
	if err != nil && (!errors.Is(err, sandbox.ErrInvalid) || !strings.HasPrefix(err.Error(), "limit "+name+":") || !strings.HasPrefix(sandbox.Hint(err), "the least is")) {
		t.Errorf("limits of %d files and %d processes: %v (%s)", w.spec.Limits.OpenFiles, w.spec.Limits.Processes, err, sandbox.Hint(err))
	}
}

// testNoLimit: a program that kills itself, or ends with a shell's code for
// that, has met no limit.
func testNoLimit(t *testing.T, s *suite, r road) {
	w := s.fixture(t)
	r, end := s.lasting(t, r, w)
	defer end()
	for _, script := range []string{"kill -KILL $$", "exit 137"} {
		o := w.run(t, r, "sh", "-c", script)
		if o.Status != sandbox.StatusError || o.Resource != "" || len(o.LimitsHit) > 0 {
			t.Errorf("%s: %s", script, o.describe())
		}
	}
}
