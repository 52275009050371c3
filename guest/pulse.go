// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"
)

// errSilent is why a session was cut on which nothing came any more.
var errSilent = errors.New("the guest agent gives no sign of life")

// pulse cuts a session on which nothing has come for a while and that does not
// answer when it is asked for a sign of life.
//
// net/http's own pings would do it too, but its client sets their timer once more
// when a connection has ended, and the timer holds all of the connection: each
// session would be kept for as long again as may pass before a ping.
type pulse struct {
	life context.Context // ends with the session
	end  context.CancelFunc

	mu     sync.Mutex
	client *Client // nil once it is closed: the runtime may hold a timer after Stop
	timer  *time.Timer
}

// watchPulse has c's session watched until it is closed.
func (c *Client) watchPulse() {
	p := &pulse{client: c}
	p.life, p.end = context.WithCancel(context.Background())
	p.mu.Lock()
	defer p.mu.Unlock()
	p.timer = time.AfterFunc(c.options.PingAfter, p.beat)
	c.pulse = p
}

// beat looks whether something has come, and asks where nothing has.
func (p *pulse) beat() {
	p.mu.Lock()
	c := p.client
	p.mu.Unlock()
	if c == nil {
		return
	}
	rest := c.options.PingAfter - c.meter.silence()
	if rest <= 0 {
		if !c.lives(p.life) {
			if p.life.Err() == nil {
				c.meter.cut(errSilent)
			}
			return
		}
		rest = c.options.PingAfter
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.client != nil {
		p.timer.Reset(rest)
	}
}

// lives asks the agent for a sign of life, whatever else it is asked. Whatever comes
// meanwhile is one, too.
func (c *Client) lives(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, c.options.PingTimeout)
	defer cancel()
	resp, err := c.send(ctx, http.MethodGet, "/health", nil, "")
	if err == nil {
		resp.Body.Close()
	}
	return err == nil || c.meter.silence() < c.options.PingAfter
}

// stop ends the watch.
func (p *pulse) stop() {
	p.end()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.timer.Stop()
	p.client = nil
}
