// SPDX-License-Identifier: Apache-2.0

package v1

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/caisson-run/caisson/session/persistent"
)

// Reading is what a sandbox used at one moment. What the level does not measure is
// absent.
type Reading struct {
	At         time.Time `json:"at"`
	CPU        *float64  `json:"cpu,omitempty" doc:"Seconds of processor time since it was started"`
	CPUPercent *float64  `json:"cpu_percent,omitempty" doc:"Of one processor, since the reading before"`
	Memory     *int64    `json:"memory,omitempty" doc:"Bytes"`
	MemoryPeak *int64    `json:"memory_peak,omitempty" doc:"Bytes"`
	Processes  *int      `json:"processes,omitempty"`
	Disk       *int64    `json:"disk,omitempty" doc:"Bytes that were written"`
}

func reading(r persistent.Reading) Reading {
	v := Reading{At: r.At.UTC(), CPUPercent: r.CPUPercent, Memory: r.Memory, MemoryPeak: r.MemoryPeak, Processes: r.Processes, Disk: r.Disk}
	if r.CPU != nil {
		s := r.CPU.Seconds()
		v.CPU = &s
	}
	return v
}

type usageAnswer struct {
	Body struct {
		Readings []Reading `json:"readings" doc:"Oldest first; the last is of now"`
		Limits   Limits    `json:"limits"`
	}
}

type usageWish struct {
	SandboxID
	Since time.Time `query:"since" doc:"Readings from then on; all of about the last hour when it is left out"`
}

type eventsWish struct {
	Since   int64   `query:"since" minimum:"0" doc:"The number of the last event that is known; 0 is none"`
	Sandbox string  `query:"sandbox" maxLength:"64" doc:"Those of one sandbox alone"`
	Wait    float64 `query:"wait" minimum:"0" maximum:"60" doc:"Seconds to wait for an event where there is none"`
}

// Event is something that happened to a sandbox.
type Event struct {
	Seq      int64     `json:"seq" doc:"Its number, which grows"`
	At       time.Time `json:"at"`
	Kind     string    `json:"kind" doc:"created, adopted, paused, resumed, snapshot, ended, …"`
	Sandbox  string    `json:"sandbox"`
	Template string    `json:"template,omitempty"`
	Reason   string    `json:"reason,omitempty"`
}

type eventsAnswer struct {
	Body struct {
		Events []Event `json:"events" doc:"Oldest first, as far as they are kept"`
		Next   int64   `json:"next" doc:"What since is to be the next time"`
	}
}

// Log is a program that has ended, and the beginning of what it wrote.
type Log struct {
	Seq      int64     `json:"seq" doc:"Its number, which grows"`
	At       time.Time `json:"at" doc:"When it ended"`
	Command  []string  `json:"command"`
	Status   string    `json:"status" doc:"success, error, timeout, resource_exceeded; failed where it could not be run"`
	ExitCode *int      `json:"exit_code,omitempty"`
	Signal   string    `json:"signal,omitempty"`
	Reason   string    `json:"reason,omitempty"`
	Stdout   string    `json:"stdout,omitempty" doc:"What is not UTF-8 is replaced"`
	Stderr   string    `json:"stderr,omitempty"`
}

func logView(l *persistent.Log) Log {
	v := Log{Seq: l.Seq, At: l.At.UTC(), Command: l.Argv, Status: string(l.Status), ExitCode: l.ExitCode, Signal: l.Signal, Reason: l.Reason,
		Stdout: strings.ToValidUTF8(string(l.Stdout), "\uFFFD"), Stderr: strings.ToValidUTF8(string(l.Stderr), "\uFFFD")}
	if v.Status == "" {
		v.Status = "failed"
	}
	return v
}

type logsWish struct {
	SandboxID
	Since int64   `query:"since" minimum:"0" doc:"The number of the last one that is known; 0 is none"`
	Wait  float64 `query:"wait" minimum:"0" maximum:"60" doc:"Seconds to wait for one where there is none"`
}

type logsAnswer struct {
	Body struct {
		Logs []Log `json:"logs" doc:"Oldest first, as far as they are kept"`
		Next int64 `json:"next" doc:"What since is to be the next time"`
	}
}

// Port is where a port of a sandbox is reached.
type Port struct {
	URL     string            `json:"url" doc:"By the sandbox's own name, which browsers can use"`
	Headers map[string]string `json:"headers" doc:"What names the port instead, at this server's own address"`
}

type portAnswer struct{ Body Port }

// observations registers what tells of sandboxes.
func (s *Server) observations() {
	op := operation("GET", "/sandboxes/{id}/usage", "sandboxUsage", "Tell what a sandbox used, as a series", http.StatusOK)
	register(s, op, func(ctx context.Context, k *persistent.Key, in *usageWish) (*usageAnswer, error) {
		b, err := s.o.Sandboxes.Handle(k, in.ID).Get(ctx)
		if err != nil {
			return nil, err
		}
		all, err := s.o.Sandboxes.Handle(k, in.ID).Readings(ctx, in.Since)
		a := &usageAnswer{}
		a.Body.Readings, a.Body.Limits = []Reading{}, limitsOf(b.Limits)
		for _, r := range all {
			a.Body.Readings = append(a.Body.Readings, reading(r))
		}
		return a, err
	})
	op = operation("GET", "/events", "listEvents", "Tell what happened to the key's sandboxes", http.StatusOK)
	op.Description = "Events are kept in memory, the last 4096 of each key; their numbers begin anew when caisson is started."
	register(s, op, s.events)
	op = operation("GET", "/sandboxes/{id}/logs", "sandboxLogs", "Show the programs of a sandbox that have ended, and what they wrote", http.StatusOK)
	op.Description = "As much of the last ones as is kept: some 256 KiB in memory, 16 KiB of a stream, for as long as the sandbox lives and caisson runs."
	register(s, op, s.logs)
	op = operation("GET", "/sandboxes/{id}/ports/{port}", "sandboxPort", "Say where a port of a sandbox is reached", http.StatusOK)
	register(s, op, func(ctx context.Context, k *persistent.Key, in *struct {
		SandboxID
		Port uint16 `path:"port" minimum:"1" maximum:"65535"`
	}) (*portAnswer, error) {
		b, err := s.o.Sandboxes.Handle(k, in.ID).Get(ctx)
		if err != nil {
			return nil, err
		}
		scheme := "http"
		if s.o.Secure {
			scheme = "https"
		}
		return &portAnswer{Port{
			URL:     fmt.Sprintf("%s://%d-%s.%s", scheme, in.Port, b.ID, s.o.Domain),
			Headers: map[string]string{"E2b-Sandbox-Id": b.ID, "E2b-Sandbox-Port": fmt.Sprint(in.Port)},
		}}, nil
	})
}

func (s *Server) events(ctx context.Context, k *persistent.Key, in *eventsWish) (*eventsAnswer, error) {
	ctx, cancel := context.WithTimeout(ctx, seconds(in.Wait))
	defer cancel()
	a := &eventsAnswer{}
	a.Body.Events, a.Body.Next = []Event{}, in.Since
	for {
		all, fresh := s.o.Sandboxes.Events(k, a.Body.Next)
		for _, e := range all {
			a.Body.Next = e.Seq
			if in.Sandbox == "" || e.Sandbox == in.Sandbox {
				a.Body.Events = append(a.Body.Events, Event{Seq: e.Seq, At: e.At.UTC(), Kind: e.Kind, Sandbox: e.Sandbox, Template: e.Template, Reason: e.Reason})
			}
		}
		if len(a.Body.Events) > 0 || in.Wait == 0 {
			return a, nil
		}
		select {
		case <-fresh:
		case <-ctx.Done():
			return a, nil
		}
	}
}

func (s *Server) logs(ctx context.Context, k *persistent.Key, in *logsWish) (*logsAnswer, error) {
	late, cancel := context.WithTimeout(ctx, seconds(in.Wait))
	defer cancel()
	a := &logsAnswer{}
	a.Body.Logs, a.Body.Next = []Log{}, in.Since
	for {
		all, fresh, err := s.o.Sandboxes.Handle(k, in.ID).Logs(ctx, in.Since)
		if err != nil {
			return nil, err
		}
		for _, l := range all {
			a.Body.Logs, a.Body.Next = append(a.Body.Logs, logView(&l)), l.Seq
		}
		if len(all) > 0 || in.Wait == 0 {
			return a, nil
		}
		select {
		case <-fresh:
		case <-late.Done():
			return a, nil
		}
	}
}
