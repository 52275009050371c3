// SPDX-License-Identifier: Apache-2.0

package faketest

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/creack/pty"

	"github.com/caisson-run/caisson/sandbox"
)

// initMessage is what the first process is told, on its fd 3. Files come as fds.
type initMessage struct {
	Spec    sandbox.Spec
	Argv    []string
	Dir     string
	Env     []string
	TTY     bool
	RootFD  int
	MountFD []int // of Root.Binds, then of Mounts; the Source fields stay behind
	Agent   bool  // the first process becomes the agent
}

// ending is what the first process reports on its fd 4.
type ending struct {
	Exit   int
	Signal syscall.Signal
	Fault  string // it could not build the world
}

// Run runs exec in a namespace of its own.
func (d *Driver) Run(ctx context.Context, spec *sandbox.Spec, ex *sandbox.Exec) (*sandbox.Result, error) {
	if err := sandbox.CheckID(spec.ID); err != nil {
		return nil, err
	}
	if d.Begun != nil {
		d.Begun(spec, ex)
	}
	d.count(1)
	defer d.count(-1)
	defer d.tellChanges(spec)

	tell, hear, cmd, err := d.command(spec, ex, nil)
	if err != nil {
		return nil, err
	}
	defer hear.Close()
	stop, err := attach(cmd, ex)
	if err != nil {
		tell.Close()
		return nil, err
	}
	defer stop()
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return nil, &sandbox.Error{Op: "start fake sandbox", Kind: sandbox.ErrUnavailable, Problem: "cannot start the first process", Cause: err}
	}
	if ex.Started != nil {
		ex.Started()
	}
	for _, f := range cmd.ExtraFiles {
		if f != nil {
			f.Close()
		}
	}
	if tty, ok := cmd.Stdin.(*os.File); ok && ex.Terminal != nil {
		tty.Close()
	}
	watch := newMeter(cmd.Process.Pid, spec, ex)
	done := make(chan struct{})
	go func() {
		watch.loop(ctx, done, func() { cmd.Process.Kill() })
	}()
	go forward(cmd.Process.Pid, ex.Signals, done)

	var end ending
	heard := json.NewDecoder(io.LimitReader(hear, 4096)).Decode(&end)
	if ex.Terminal != nil {
		stop() // waits for the terminal's last output
	}
	werr := cmd.Wait()
	close(done)
	if end.Fault != "" {
		return nil, sandbox.Errorf(sandbox.ErrInvalid, "start fake sandbox", "%s", end.Fault)
	}
	res := watch.result(time.Since(began))
	switch {
	case heard != nil || res.Resource != "":
		res.Signal = "SIGKILL"
	case end.Signal != 0:
		res.Signal = signalName(end.Signal)
	default:
		res.ExitCode = &end.Exit
	}
	if res.Status == "" {
		res.Status = sandbox.StatusError
		if werr == nil && end.Exit == 0 && end.Signal == 0 {
			res.Status = sandbox.StatusSuccess
		}
	}
	return res, nil
}

// command makes the re-exec of this binary with the world on its fd 3, and with
// the agent's program, when there is one, on agentFD.
func (d *Driver) command(spec *sandbox.Spec, ex *sandbox.Exec, program *os.File) (tell, hear *os.File, cmd *exec.Cmd, err error) {
	w := initMessage{Spec: *spec, Argv: ex.Argv, Dir: ex.Dir, Env: ex.Env, TTY: ex.Terminal != nil, RootFD: -1, Agent: program != nil}
	var files []*os.File
	// Go's exec gives ExtraFiles[i] the number 3+i; 3 and 4 are the pipes.
	pass := func(f *os.File) int {
		dup, derr := syscall.Open("/proc/self/fd/"+itoa(int(f.Fd())), 0x200000 /* O_PATH */ |syscall.O_CLOEXEC, 0)
		if derr != nil && err == nil {
			err = derr
		}
		files = append(files, os.NewFile(uintptr(dup), f.Name()))
		return 5 + len(files) - 1
	}
	if program != nil {
		dup, derr := syscall.Open("/proc/self/fd/"+itoa(int(program.Fd())), syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
		if derr != nil {
			return nil, nil, nil, derr
		}
		files = append(files, os.NewFile(uintptr(dup), "agent"))
	}
	if spec.Root.Dir != nil {
		w.RootFD = pass(spec.Root.Dir)
	}
	w.Spec.Root.Dir = nil
	strip := func(ms []sandbox.Mount) []sandbox.Mount {
		out := append([]sandbox.Mount(nil), ms...)
		for i := range out {
			w.MountFD = append(w.MountFD, pass(out[i].Source))
			out[i].Source = nil
		}
		return out
	}
	w.Spec.Root.Binds = strip(spec.Root.Binds)
	w.Spec.Mounts = strip(spec.Mounts)
	if err != nil {
		return nil, nil, nil, &sandbox.Error{Op: "start fake sandbox", Kind: sandbox.ErrInvalid, Problem: "a source is closed", Cause: err}
	}
	message, err := json.Marshal(w)
	if err != nil {
		return nil, nil, nil, err
	}
	say, tell, err := os.Pipe()
	if err != nil {
		return nil, nil, nil, err
	}
	hear, answer, err := os.Pipe()
	if err != nil {
		return nil, nil, nil, err
	}
	go func() {
		tell.Write(message)
		tell.Close()
	}()
	cmd = exec.Command("/proc/self/exe")
	cmd.Env = []string{initMark + "=1"}
	cmd.ExtraFiles = append([]*os.File{say, answer}, files...)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWUTS,
		Pdeathsig:  syscall.SIGKILL,
	}
	if d.HostPIDs {
		cmd.SysProcAttr.Cloneflags &^= syscall.CLONE_NEWPID
	}
	return tell, hear, cmd, nil
}

// attach connects stdio; the function it returns may be called twice.
func attach(cmd *exec.Cmd, ex *sandbox.Exec) (func(), error) {
	if ex.Terminal == nil {
		cmd.Stdout, cmd.Stderr = ex.Stdout, ex.Stderr
		cmd.WaitDelay = time.Second
		if ex.Stdin == nil {
			return func() {}, nil
		}
		// Not cmd.Stdin: Wait would wait for a reader that may block for ever.
		in, err := cmd.StdinPipe()
		if err != nil {
			return nil, err
		}
		go func() {
			io.Copy(in, ex.Stdin)
			in.Close()
		}()
		return func() { in.Close() }, nil
	}
	master, slave, err := pty.Open()
	if err != nil {
		return nil, err
	}
	size := func(s sandbox.WindowSize) { pty.Setsize(master, &pty.Winsize{Rows: s.Rows, Cols: s.Cols}) }
	size(ex.Terminal.Size)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	copied, over := make(chan struct{}), make(chan struct{})
	go func() {
		io.Copy(ex.Stdout, master)
		close(copied)
	}()
	if ex.Stdin != nil {
		go io.Copy(master, ex.Stdin)
	}
	go func() {
		for {
			select {
			case s := <-ex.Terminal.Resize:
				size(s)
			case <-over:
				return
			}
		}
	}()
	ended := false
	return func() {
		if !ended {
			ended = true
			<-copied
			close(over)
			master.Close()
		}
	}, nil
}

// forward hands signals to the first process, which hands them on.
func forward(pid int, signals <-chan syscall.Signal, done <-chan struct{}) {
	for {
		select {
		case s := <-signals:
			syscall.Kill(pid, s)
		case <-done:
			return
		}
	}
}
