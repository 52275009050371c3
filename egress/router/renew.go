// SPDX-License-Identifier: Apache-2.0

package router

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/caisson-run/caisson/egress/rule"
	"github.com/caisson-run/caisson/egress/wire"
)

// The value of some secrets expires: the access token of a login. The router cannot have
// another one, and should not be able to. It tells its owner, which has what gives one, and
// the request waits.

// renewal is the value of such a secret.
type renewal struct {
	mu      sync.Mutex
	value   wire.Value
	serial  int64
	expires time.Time
	problem string
	asked   chan struct{} // closed by the owner's word; nil while it is not asked for
}

const (
	// renewTime is how long a request waits for its owner's word.
	renewTime = 45 * time.Second
	// renewLeeway is how long before its end a value counts as expired.
	renewLeeway = 30 * time.Second
)

// current is the value, which another may take the place of.
func (s *Secret) current() string {
	if s.renews == nil {
		return string(s.value)
	}
	s.renews.mu.Lock()
	defer s.renews.mu.Unlock()
	return string(s.renews.value)
}

// state is the number of the value, and whether it has expired.
func (v *renewal) state() (serial int64, expired bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.serial, !v.expires.IsZero() && time.Until(v.expires) < renewLeeway
}

// renew has the value with a number renewed, and waits for the owner's word. It gives the
// number of the value that there is then.
func (r *Router) renew(ctx context.Context, s *Secret, serial int64) (int64, error) {
	v := s.renews
	v.mu.Lock()
	if v.serial != serial { // another renewal was faster
		defer v.mu.Unlock()
		return v.serial, nil
	}
	first := v.asked == nil
	if first {
		v.asked = make(chan struct{})
	}
	asked := v.asked
	v.mu.Unlock()
	if first {
		r.o.Event(wire.Event{Kind: wire.Stale, Secret: s.name, Serial: serial})
	}
	late := time.NewTimer(renewTime)
	defer late.Stop()
	select {
	case <-asked:
	case <-ctx.Done():
		return serial, context.Cause(ctx)
	case <-r.ctx.Done():
		return serial, errShut
	case <-late.C:
		return serial, errors.New("it was not renewed in time")
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.problem != "" {
		return v.serial, errors.New(v.problem)
	}
	return v.serial, nil
}

// Renewed takes the owner's word.
func (r *Router) Renewed(n wire.Renewal) {
	ends := r.ends.Load()
	if ends == nil {
		return
	}
	for _, s := range ends.Secrets {
		if s.name == n.Name && s.renews != nil {
			s.renews.take(n)
		}
	}
}

func (v *renewal) take(n wire.Renewal) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.problem = n.Problem
	if n.Problem == "" {
		if err := rule.CheckSecretValue(string(n.Value)); err != nil {
			v.problem = "what it was renewed to cannot be used: " + err.Error()
		} else {
			v.value, v.serial, v.expires = n.Value, n.Serial, n.Expires
		}
	}
	if v.asked != nil {
		close(v.asked)
		v.asked = nil
	}
}

// used is a secret that a request got whose value can be renewed, and the value's number.
type used struct {
	secret *Secret
	serial int64
}

// freshen has the value renewed that a request is about to get, where it has expired.
func (r *Router) freshen(ctx context.Context, secrets Secrets, n rule.Name, port uint16, tls bool, h http.Header) (u used, err error) {
	for _, s := range secrets {
		values := h[s.header]
		if s.renews == nil || len(values) != 1 || !s.in(values[0]) || !s.to(n, port, tls) {
			continue
		}
		serial, expired := s.renews.state()
		if expired {
			if serial, err = r.renew(ctx, s, serial); err != nil {
				return used{}, fmt.Errorf("the secret %s: %w", s.name, err)
			}
			if _, expired = s.renews.state(); expired {
				return used{}, fmt.Errorf("the secret %s has expired", s.name)
			}
		}
		return used{s, serial}, nil
	}
	return used{}, nil
}

// renewed answers for a host that refused a login: where that is renewed now, the client is
// to ask again. It reports whether the answer is another one.
func (r *Router) renewed(res *http.Response, u used) bool {
	if u.secret == nil || res.StatusCode != http.StatusUnauthorized {
		return false
	}
	if serial, err := r.renew(res.Request.Context(), u.secret, u.serial); err != nil || serial == u.serial {
		return false
	}
	res.Body.Close()
	body := `{"error":"egress_renewed","reason":"the secret ` + u.secret.name + ` was renewed; ask again"}`
	res.StatusCode, res.Status = http.StatusServiceUnavailable, "503 Service Unavailable"
	res.Header = http.Header{"Content-Type": {"application/json"}, "Content-Length": {strconv.Itoa(len(body))}, "Retry-After": {"0"}, "X-Should-Retry": {"true"}}
	res.Trailer, res.ContentLength, res.TransferEncoding = nil, int64(len(body)), nil
	res.Body = io.NopCloser(strings.NewReader(body))
	return true
}
