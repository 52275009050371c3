// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/caisson-run/caisson/guest/agent/interpreter"
	"github.com/caisson-run/caisson/guest/wire"
	"github.com/caisson-run/caisson/internal/envd"
)

// Options say how an agent behaves. The zero value serves root's files and
// ends with its stream.
type Options struct {
	// UID, GID, Name and Home are the user whom envd's services mean when a
	// request names none.
	UID, GID uint32
	Name     string
	Home     string
	// Stay is how long to wait without a session for another one after the
	// stream has ended; 0 ends the agent with its stream.
	Stay time.Duration
	// Sudo lets a request name root and lets set-user-id programs work; otherwise
	// both are refused by name.
	Sudo bool
	// Programs is a directory in everybody's PATH that takes the sudo; empty is
	// none.
	Programs string
	// Filter gives every program the system call filter for untrusted code: on
	// levels where it talks to the host's kernel itself.
	Filter bool
}

// Agent serves one sandbox.
type Agent struct {
	options  Options
	table    *table
	services services
	settings settings
	clock    clock
	watchers watchers
	contexts interpreter.Contexts
}

// New makes an agent. There is one in a program, since it reaps every child.
func New(o Options) *Agent {
	if o.Home == "" {
		o.Home = "/"
	}
	return &Agent{options: o, table: newTable()}
}

// Serve answers on s until the stream ends, which is no error. Programs that
// still run then are left to the owner, who ends the sandbox.
func (a *Agent) Serve(s wire.Stream, mark wire.Mark) error {
	stop := make(chan struct{})
	reaped := make(chan struct{})
	go func() { defer close(reaped); a.table.reap(stop) }()
	defer func() { close(stop); <-reaped }()
	if w := a.table.oom; w != nil {
		go w.run(stop)
	}

	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	server := &http.Server{
		Handler:   a.handler(),
		Protocols: &protocols,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams:          256,
			MaxReadFrameSize:              1 << 20,
			MaxReceiveBufferPerConnection: 4<<20 - 1,
			MaxReceiveBufferPerStream:     1 << 20,
		},
		MaxHeaderBytes: 16 << 10,
	}
	err := server.Serve(wire.NewListener(s, mark, a.options.Stay))
	server.Close()
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// handler is every service of the agent.
func (a *Agent) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("POST "+wire.PathExec, a.serveExec)
	mux.HandleFunc("POST "+wire.PathSignal, unary(a.serveSignal))
	mux.HandleFunc("POST "+wire.PathResize, unary(a.serveResize))
	mux.HandleFunc("POST "+wire.PathCollect, a.serveCollect)
	mux.HandleFunc("POST "+wire.PathPlace, a.servePlace)
	mux.HandleFunc("POST "+wire.PathResume, unary(a.serveResume))
	mux.HandleFunc("POST "+wire.PathTunnel, a.serveTunnel)
	mux.HandleFunc("POST "+wire.PathContext, unary(a.serveContext))
	mux.HandleFunc("POST "+wire.PathContextList, unary(a.serveContextList))
	mux.HandleFunc("POST "+wire.PathContextRestart, unary(a.atContext(a.contexts.Restart)))
	mux.HandleFunc("POST "+wire.PathContextInterrupt, unary(a.atContext(a.contexts.Interrupt)))
	mux.HandleFunc("POST "+wire.PathContextRemove, unary(a.atContext(a.contexts.Remove)))
	mux.HandleFunc("POST "+wire.PathCell, a.serveCell)
	mux.HandleFunc("GET "+envd.PathEnvs, a.serveEnvs)
	mux.HandleFunc("GET "+envd.PathMetrics, a.serveMetrics)
	mux.HandleFunc("POST "+envd.PathStart, a.serveStart)
	mux.HandleFunc("POST "+envd.PathConnect, a.serveConnect)
	mux.HandleFunc("POST "+envd.PathList, unary(a.serveList))
	mux.HandleFunc("POST "+envd.PathSendInput, unary(a.serveSendInput))
	mux.HandleFunc("POST "+envd.PathStreamInput, a.serveStreamInput)
	mux.HandleFunc("POST "+envd.PathCloseStdin, unary(a.serveCloseStdin))
	mux.HandleFunc("POST "+envd.PathSendSignal, unary(a.serveSendSignal))
	mux.HandleFunc("POST "+envd.PathUpdate, unary(a.serveUpdate))
	mux.HandleFunc("POST "+envd.PathStat, unary(a.serveStat))
	mux.HandleFunc("POST "+envd.PathMakeDir, unary(a.serveMakeDir))
	mux.HandleFunc("POST "+envd.PathMove, unary(a.serveMove))
	mux.HandleFunc("POST "+envd.PathListDir, unary(a.serveListDir))
	mux.HandleFunc("POST "+envd.PathRemove, unary(a.serveRemove))
	mux.HandleFunc("POST "+envd.PathWatchDir, a.serveWatchDir)
	mux.HandleFunc("POST "+envd.PathCreateWatcher, unary(a.serveCreateWatcher))
	mux.HandleFunc("POST "+envd.PathGetWatcherEvents, unary(a.serveGetWatcherEvents))
	mux.HandleFunc("POST "+envd.PathRemoveWatcher, unary(a.serveRemoveWatcher))
	mux.HandleFunc("GET "+envd.PathFiles, a.serveDownload)
	mux.HandleFunc("POST "+envd.PathCompose, a.serveCompose)
	mux.HandleFunc("POST "+envd.PathFiles, a.serveUpload)
	return mux
}
